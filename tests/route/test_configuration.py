"""HAProxy's configuration: HAProxy takes it, and it says what the places are."""

import re

import pytest

from inferd.route.arrangement import Arranger, KnownPlace, ModelKind
from inferd.route.configuration import Paths, RouteSettings, configuration, map_lines
from inferd.route.haproxy import check_configuration
from inferd.route.place import Place, PlaceState

A = KnownPlace(
    Place("a", "h", 8000, 8001), "10.0.0.1", {"m": ModelKind.REPEATABLE, "q": ModelKind.SEQUENCE}
)
B = KnownPlace(
    Place("b", "h", 9000, 9000, None, PlaceState.DRAINING), "fd00::1", {"m": ModelKind.REPEATABLE}
)
OBSERVE = "observe layer4 error-limit 1 on-error mark-down"


@pytest.fixture
def text_of(tmp_path):
    paths = Paths(
        *(str(tmp_path / name) for name in ("haproxy.sock", "models.map", "own.sock", "front.sock"))
    )

    def text(known=(), slot_count=3, *, has_lua=False):
        settings = RouteSettings("127.0.0.1", threads=1, max_groups=2)
        arrangement = Arranger(slot_count, settings.max_groups).arrange(known)
        lines = "".join(f"{key} {value}\n" for key, value in map_lines(arrangement))
        (tmp_path / "models.map").write_text(lines)
        binds = ["127.0.0.1:8000", "127.0.0.1:8001"]
        return configuration(binds, paths, settings, arrangement, has_lua=has_lua)

    return text


@pytest.mark.parametrize("known", [(), (A,), (A, B)])
@pytest.mark.parametrize("has_lua", [False, True])
def test_haproxy_takes_it_without_a_warning(text_of, program, tmp_path, known, has_lua):
    path = tmp_path / "haproxy.cfg"
    path.write_text(text_of(known, has_lua=has_lua))
    assert check_configuration(program, path) == ""


def test_haproxy_would_find_a_mistake(text_of, program, tmp_path):
    path = tmp_path / "haproxy.cfg"
    path.write_text(text_of().replace("balance leastconn", "balance leastcon"))
    assert "leastcon" in check_configuration(program, path)


def backend(text, name):
    """Return the lines of a backend."""
    found = re.search(rf"^backend {name} .*\n((    .*\n)*)", text, re.MULTILINE)
    return [line.strip() for line in found[1].splitlines() if not line.strip().startswith("#")]


def test_each_place_is_in_its_slot_and_free_slots_get_nothing(text_of):
    text = text_of((A, B))
    assert backend(text, "checks-all")[-3:] == [
        "server p1 10.0.0.1:8000 check",
        "server p2 [fd00::1]:9000 weight 0 check",
        "server p3 127.0.0.1:1 disabled check",
    ]
    checked_at = "check check-proto h1 port"
    assert backend(text, "grpc-all") == [
        f"server p1 10.0.0.1:8001 proto h2 {checked_at} 8000 {OBSERVE}",
        "server p1-unchecked 10.0.0.1:8001 proto h2 backup",
        f"server p2 [fd00::1]:9000 proto h2 weight 0 {checked_at} 9000 {OBSERVE}",
        "server p2-unchecked [fd00::1]:9000 proto h2 weight 0 backup",
        f"server p3 127.0.0.1:1 proto h2 disabled {checked_at} 1 {OBSERVE}",
        "server p3-unchecked 127.0.0.1:1 proto h2 disabled backup",
    ]


def test_a_group_has_only_the_places_of_its_models(text_of):
    text = text_of((A, B))
    assert backend(text, "rest-1") == [
        f"server p1 10.0.0.1:8000 check {OBSERVE}",
        "server p1-unchecked 10.0.0.1:8000 backup",
        f"server p2 [fd00::1]:9000 disabled check {OBSERVE}",
        "server p2-unchecked [fd00::1]:9000 disabled backup",
        f"server p3 127.0.0.1:1 disabled check {OBSERVE}",
        "server p3-unchecked 127.0.0.1:1 disabled backup",
    ]
    assert backend(text, "sequences-1")[1] == "server p1 10.0.0.1:8000 track checks-all/p1"
    assert "backup" not in "".join(backend(text, "sequences-1"))
    assert [line for line in backend(text, "sequences-2") if " disabled" not in line] == [
        "stick on var(txn.key),sha1,hex table begun-sequences"
    ]


def test_the_map_has_group_and_kind_of_each_model_and_whether_places_differ():
    arranger = Arranger(2, 1)
    assert list(map_lines(arranger.arrange((B,)))) == [("m", "all.repeatable")]
    assert [key for key, _ in map_lines(arranger.arrange((A,)))] == ["m", "q", "//"]
    assert list(map_lines(arranger.arrange((A, B)))) == [
        ("m", "all.repeatable"),
        ("q", "1.sequence"),
        ("/", "differ"),
        ("//", "needs-model"),
    ]


def test_models_that_sleep_are_known_and_keep_streams_from_no_place():
    """A stream that names no model is not for them."""
    assert dict(map_lines(Arranger(2, 1).arrange((B,), {"m", "z", "with blank"}))) == {
        "m": "all.repeatable",
        "z": "asleep.once",
        "//": "needs-model",
    }


def test_versions_that_differ_do_not_keep_streams_from_any_place():
    """A stream need not say its model as long as all places have all models."""
    known = [A._replace(versions={"m": {"1"}}), A._replace(place=B.place, versions={"m": {"2"}})]
    assert dict(map_lines(Arranger(2, 2).arrange(known))) == {
        "m": "all.repeatable",
        "m/1": "1.repeatable",
        "m/2": "2.repeatable",
        "q": "all.sequence",
        "//": "needs-model",
    }


def test_nothing_is_left_to_be_filled_in(text_of):
    assert not re.search(r"@[a-z_-]+@", text_of((A, B)).replace("unix@", ""))
