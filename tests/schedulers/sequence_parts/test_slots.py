from inferd.schedulers.sequence_parts.live import Slot, Slots


def test_the_first_slot_of_every_instance_comes_before_the_second_of_any():
    slots = Slots(2, 2)
    assert [slots.take() for _ in range(5)] == [
        Slot(0, 0),
        Slot(0, 1),
        Slot(1, 0),
        Slot(1, 1),
        None,
    ]


def test_the_lowest_free_slot_is_taken_next():
    slots = Slots(2, 3)
    taken = [slots.take() for _ in range(4)]
    slots.free(taken[3])
    slots.free(taken[0])
    assert [slots.take(), slots.take(), slots.take()] == [Slot(0, 0), Slot(1, 1), Slot(2, 0)]


def test_slots_nobody_took_need_no_memory():
    assert Slots(1, 2**60).take() == Slot(0, 0)


def test_the_places_of_an_instance_that_comes_are_handed_out_lowest_first():
    slots = Slots(1, 3)
    assert [slots.take(), slots.take()] == [Slot(0, 0), Slot(1, 0)]
    slots.open(7)
    assert [slots.take() for _ in range(5)] == [
        Slot(0, 7),
        Slot(1, 7),
        Slot(2, 0),
        Slot(2, 7),
        None,
    ]


def test_an_instance_that_goes_gets_nobody_any_more():
    slots = Slots(2, 2)
    taken = [slots.take() for _ in range(3)]
    slots.close(1)
    for slot in taken:
        slots.free(slot)
    assert [slots.take(), slots.take(), slots.take()] == [Slot(0, 0), Slot(1, 0), None]
