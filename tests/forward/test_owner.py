from collections import Counter

from inferd.forward.owner import model_key, owner_of, sequence_key


def test_a_key_has_the_same_owner_in_every_process_and_release():
    keys = [model_key("m"), sequence_key("m", 5), sequence_key("m", "5")]
    assert [owner_of(key, range(4)) for key in keys] == [2, 2, 1]
    assert [owner_of(key, reversed(range(4))) for key in keys] == [2, 2, 1]


def test_numbers_and_texts_are_different_sequences_of_each_model():
    keys = {sequence_key(model, id) for model in ("m", "mn") for id in (5, "5", "n5", "t5", 55)}
    assert len(keys) == 10


def test_a_name_that_is_no_text_has_an_owner():
    assert owner_of(sequence_key("\ud800", "\udfff"), [3]) == 3


def test_sequences_are_spread_evenly():
    for key in (
        model_key,
        lambda name: sequence_key("m", int(name)),
        lambda n: sequence_key("m", n),
    ):
        counts = Counter(owner_of(key(str(number)), range(4)) for number in range(10_000))
        assert sorted(counts) == [0, 1, 2, 3]
        assert all(2300 < count < 2700 for count in counts.values())


def test_without_a_process_only_what_it_owned_gets_other_owners():
    keys = [sequence_key("m", number) for number in range(1000)]
    before = [owner_of(key, range(4)) for key in keys]
    after = [owner_of(key, (0, 1, 3)) for key in keys]
    moved = [old for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {2}
    assert len(moved) == before.count(2)
