"""The candidates of a space."""

from inferd.tune.space import BATCH, DELAY, INSTANCES, Knob, Space

SPACE = Space([Knob(INSTANCES, (1, 2)), Knob(BATCH, (1, 4)), Knob(DELAY, (0, 500))])


def test_all_combinations_are_candidates_but_those_that_say_the_same():
    assert SPACE.candidates == [
        (1, 1, 0), (1, 4, 0), (1, 4, 500), (2, 1, 0), (2, 4, 0), (2, 4, 500)
    ]  # fmt: skip
    assert SPACE.canonical((2, 1, 500)) == (2, 1, 0)
    assert SPACE.canonical((2, 4, 500)) == (2, 4, 500)


def test_values_by_name():
    assert SPACE.named((2, 4, 500)) == {INSTANCES: 2, BATCH: 4, DELAY: 500}


def test_positions_are_steps_along_each_knob():
    assert [*SPACE.positions()][2] == [0, 1, 1]


def test_words_have_no_order():
    assert Knob(INSTANCES, (1, 2)).is_ordered
    assert not Knob("process", ("server", "worker")).is_ordered
