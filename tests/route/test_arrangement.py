"""Places in slots, and models in groups: as little as possible moves."""

from dataclasses import replace

from inferd.route.arrangement import ALL, Arranger, KnownPlace, ModelKind, SlotContent, SlotUse
from inferd.route.place import Place, PlaceState

REPEATABLE, ONCE, SEQUENCE = ModelKind


def known(name, **models):
    """Return a known place of that name, with kinds by model."""
    return KnownPlace(Place(name, name, 8000, 8001), "10.0.0.1", models)


def names(arrangement):
    return [content.name for content in arrangement.slots]


def test_models_that_all_places_have_need_no_group():
    arrangement = Arranger(3, 1).arrange([known("a", m=REPEATABLE), known("b", m=REPEATABLE)])
    assert names(arrangement) == ["a", "b", ""]
    assert arrangement.slots[0] == SlotContent("a", "10.0.0.1", 8000, 8001, SlotUse.READY)
    assert arrangement.groups == {}
    assert arrangement.models == {"m": (ALL, REPEATABLE)}


def test_models_of_the_same_places_share_a_group():
    arrangement = Arranger(3, 2).arrange(
        [known("a", m=ONCE, n=ONCE, o=ONCE), known("b", o=ONCE, p=ONCE)]
    )
    assert arrangement.groups == {1: {0}, 2: {1}}
    groups = {model: group for model, (group, _) in arrangement.models.items()}
    assert groups == {"m": "1", "n": "1", "o": ALL, "p": "2"}


def test_the_kind_that_needs_the_most_care_counts():
    arrangement = Arranger(3, 2).arrange(
        [
            known("a", m=REPEATABLE, n=SEQUENCE),
            known("b", m=ONCE, n=REPEATABLE),
            known("c", m=REPEATABLE, n=ONCE),
        ]
    )
    assert arrangement.models == {"m": (ALL, ONCE), "n": (ALL, SEQUENCE)}


def test_places_stay_in_their_slots_and_the_slot_free_for_longest_is_used():
    arranger = Arranger(3, 0)
    arranger.arrange([known("a"), known("b"), known("c")])
    assert names(arranger.arrange([known("b"), known("c")])) == ["", "b", "c"]
    assert names(arranger.arrange([known("c")])) == ["", "", "c"]
    assert names(arranger.arrange([known("d"), known("c")])) == ["d", "", "c"]
    assert names(arranger.arrange([known("e"), known("c"), known("d")])) == ["d", "e", "c"]


def test_a_place_that_has_gone_leaves_its_slot_unused():
    arranger = Arranger(1, 0)
    arranger.arrange([known("a")])
    assert arranger.arrange([]).slots[0].use is SlotUse.UNUSED


def test_places_without_a_slot_are_left_out_until_there_is_one():
    arranger = Arranger(1, 0)
    both = [known("a", m=ONCE), known("b", n=ONCE)]
    arrangement = arranger.arrange(both)
    assert arrangement.left_out == ("b",)
    assert arrangement.models == {"m": (ALL, ONCE)}
    assert arranger.arrange(both[1:]).models == {"n": (ALL, ONCE)}


def test_models_without_a_group_are_lost_until_there_is_one():
    arranger = Arranger(3, 1)
    three = [known("a", m=ONCE), known("b", n=ONCE), known("c", o=ONCE)]
    arrangement = arranger.arrange(three)
    assert arrangement.lost_models == ("n", "o")
    assert set(arrangement.models) == {"m"}
    arrangement = arranger.arrange([known("a", m=ONCE), known("b", n=ONCE, m=ONCE)])
    assert arrangement.lost_models == ()


def test_a_name_with_a_blank_is_routed_only_if_all_places_have_it():
    arranger = Arranger(3, 1)
    assert arranger.arrange([known("a", **{"a b": ONCE})]).lost_models == ()
    arrangement = arranger.arrange([known("a", **{"a b": ONCE}), known("b")])
    assert arrangement.lost_models == ("a b",)
    assert arrangement.models == {}


def test_a_group_follows_its_models_to_other_places():
    arranger = Arranger(3, 2)
    before = [known("a", m=ONCE), known("b")]
    assert arranger.arrange(before).groups == {1: {0}}
    arrangement = arranger.arrange([known("a", m=ONCE), known("b", m=ONCE), known("c")])
    assert arrangement.groups == {1: {0, 1}}
    assert arrangement.models == {"m": ("1", ONCE)}


def test_a_group_given_up_is_not_used_at_once_for_others():
    arranger = Arranger(2, 2)
    arranger.arrange([known("a", m=ONCE), known("b")])
    arrangement = arranger.arrange([known("a"), known("b", n=ONCE)])
    assert arrangement.models == {"n": ("2", ONCE)}


def test_a_group_given_up_is_used_at_once_if_there_is_no_other():
    arranger = Arranger(2, 1)
    arranger.arrange([known("a", m=ONCE), known("b")])
    arrangement = arranger.arrange([known("a"), known("b", n=ONCE)])
    assert arrangement.groups == {1: {1}}


def draining(one):
    return one._replace(place=replace(one.place, state=PlaceState.DRAINING))


def test_a_draining_place_stays_in_its_groups():
    arranger = Arranger(3, 1)
    a, b, c = known("a", m=SEQUENCE), known("b", m=SEQUENCE), known("c")
    before = arranger.arrange([a, b, c])
    arrangement = arranger.arrange([draining(a), b, c])
    assert arrangement.slots[0].use is SlotUse.DRAIN
    assert (arrangement.groups, arrangement.models) == (before.groups, before.models)


def test_a_place_drains_only_once_others_have_its_models():
    arranger = Arranger(3, 1)
    a, b = known("a", m=ONCE), known("b", m=ONCE)
    arranger.arrange([a, b])
    assert [one.use for one in arranger.arrange([draining(a), draining(b)]).slots[:2]] == [
        SlotUse.READY
    ] * 2
    uses = [
        one.use for one in arranger.arrange([draining(a), draining(b), known("c", m=ONCE)]).slots
    ]
    assert uses == [SlotUse.DRAIN, SlotUse.DRAIN, SlotUse.READY]


def versions_of(name, **versions):
    """Return a known place of that name that has models in some versions."""
    found = {model: frozenset(several.split()) for model, several in versions.items()}
    return known(name, **dict.fromkeys(versions, ONCE))._replace(versions=found)


def test_versions_that_all_places_of_their_model_have_need_no_group():
    places = [versions_of("a", m="1 2", n="1"), versions_of("b", m="1 2")]
    arrangement = Arranger(3, 2).arrange(places)
    assert set(arrangement.models) == {"m", "n"}
    assert arrangement.mixed_models == ()


def test_versions_that_only_some_places_have_are_sent_there():
    places = [versions_of("a", m="1"), versions_of("b", m="1 2"), versions_of("c", m="2 3")]
    arrangement = Arranger(3, 3).arrange(places)
    having = {
        model: arrangement.groups[int(group)]
        for model, (group, _) in arrangement.models.items()
        if group != ALL
    }
    assert having == {"m/1": {0, 1}, "m/2": {1, 2}, "m/3": {2}}
    assert arrangement.models["m"] == (ALL, ONCE)


def test_models_whose_newest_version_differs_are_told_with_their_places():
    places = [
        versions_of("a", m="1 2", n="9"),
        versions_of("b", m="2", n="10"),
        versions_of("c", m="2", n="9 10"),
    ]
    arranger = Arranger(3, 3)
    assert arranger.arrange(places).mixed_models == ("n (9 at a; 10 at b, c)",)
    places[0] = draining(places[0])
    assert arranger.arrange(places).mixed_models == ()
