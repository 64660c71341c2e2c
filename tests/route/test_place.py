"""A place is a value, which a source gives again and again."""

from inferd.route.place import Place, PlaceState


def test_a_place_is_meant_to_have_every_model_and_is_ready_unless_said_otherwise():
    place = Place("a", "10.0.0.1", 8000, 8001)
    assert place.models is None
    assert place.state is PlaceState.READY


def test_equal_places_are_one():
    assert len({Place("a", "h", 1, 2), Place("a", "h", 1, 2), Place("a", "h", 1, 3)}) == 2
