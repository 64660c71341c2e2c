"""Places that sleep are told apart, and woken by those who ask for their models."""

from inferd.route.control import Sleepers
from inferd.route.place import Place, PlaceState

AWAKE = Place("g-1", "h", 1, 2)
FACES = Place("faces", "", 0, 0, frozenset({"face", "a/b"}), PlaceState.ASLEEP)


class Told:
    """Sleepers, who was woken, and the time."""

    def __init__(self, *places):
        self.woken = []
        self.now = 100.0
        self.sleepers = Sleepers(self.woken.append, lambda: self.now)
        self.awake = self.sleepers.without(places)


def test_those_that_sleep_are_no_places_and_their_models_are_known():
    told = Told(AWAKE, FACES)
    assert told.awake == (AWAKE,)
    assert told.sleepers.models == {"face", "a/b"}
    assert told.sleepers.without([AWAKE]) == (AWAKE,)
    assert told.sleepers.models == frozenset()


def test_who_has_the_model_is_woken_and_the_client_is_told_to_ask_again():
    told = Told(FACES)
    assert "'a/b'" in told.sleepers.wake("a%2Fb")
    assert "ask again in 5 seconds" in told.sleepers.wake("face")
    assert told.woken == ["faces"]


def test_many_requests_wake_it_once_a_second():
    told = Told(FACES)
    for _ in range(10):
        told.now += 0.25
        told.sleepers.wake("face")
    assert told.woken == ["faces"] * 3


def test_a_model_that_nobody_has_any_more_wakes_nobody():
    told = Told(AWAKE)
    told.sleepers.wake("face")
    assert told.woken == []
