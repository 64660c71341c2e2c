"""Places in a file: what it says, what it must not say, and its changes."""

import asyncio
import json

import pytest

from inferd.errors import InvalidConfig
from inferd.route.place import Place, PlaceState, SourceFailed
from inferd.route.sources.file import FileSource, places_in, read_places

A = {"name": "a", "host": "10.0.0.1", "http_port": 8000, "grpc_port": 8001}
PLACE_A = Place("a", "10.0.0.1", 8000, 8001)
TOML = """
[[places]]
host = "10.0.0.1"
http_port = 8000
grpc_port = 8001

[[places]]
name = "b"
host = "node.example"
http_port = 9000
grpc_port = 9000
models = ["digits", "a model"]
state = "draining"
"""


def test_a_file_in_toml_has_places(tmp_path):
    path = tmp_path / "places.toml"
    path.write_text(TOML)
    assert read_places(path) == (
        Place("10.0.0.1:8000", "10.0.0.1", 8000, 8001),
        Place(
            "b", "node.example", 9000, 9000, frozenset({"digits", "a model"}), PlaceState.DRAINING
        ),
    )


def test_a_file_in_json_says_the_same(tmp_path):
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"places": [A]}))
    assert read_places(path) == (PLACE_A,)


def test_a_file_may_have_no_places(tmp_path):
    path = tmp_path / "places.toml"
    path.write_text("")
    assert read_places(path) == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "f has to say nothing but places"),
        ({"place": []}, "f has to say nothing but places"),
        ({"places": {}}, "f: places is {}, expected a list"),
        ({"places": ["a"]}, "f: place 1 is 'a', expected name, host, "),
        ({"places": [A | {"port": 1}]}, "f: place 1 has the unknown key port"),
        ({"places": [A | {"host": ""}]}, "f: place 1: host is '', expected a text"),
        ({"places": [A | {"host": "a b"}]}, "f: place 1: host is 'a b', expected a text"),
        ({"places": [A | {"name": "a\nb"}]}, "f: place 1: name is 'a\\nb', expected a text"),
        ({"places": [A | {"http_port": 0}]}, "f: place 1: http_port is 0, expected a port"),
        ({"places": [A | {"grpc_port": True}]}, "f: place 1: grpc_port is True, expected a port"),
        ({"places": [A | {"grpc_port": None}]}, "f: place 1: grpc_port is missing, expected"),
        ({"places": [A | {"models": "m"}]}, "f: place 1: models is 'm', expected a list"),
        ({"places": [A | {"models": ["a/b"]}]}, "f: place 1: models has 'a/b', which is no name"),
        ({"places": [A | {"state": "up"}]}, "f: place 1: state is 'up', expected ready or drain"),
        ({"places": [A, A]}, "f: two places are called 'a'"),
    ],
)
def test_what_is_wrong_is_named(document, message):
    with pytest.raises(InvalidConfig) as refused:
        places_in(document, "f")
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.toml", b"places =", "is not valid TOML: "),
        ("a.json", b"{", "is not valid JSON: "),
        ("a.json", b"[" * 200000, "is nested too deeply"),
        ("a.toml", b"\xff", "is not valid TOML: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InvalidConfig) as refused:
        read_places(path)
    assert refused.value.message.startswith(f"{path} {message}")


def test_changes_of_the_file_are_followed(tmp_path):
    path = tmp_path / "places.json"

    async def changes():
        path.write_text(json.dumps({"places": [A]}))
        places = FileSource(path, look_s=0).follow()
        first = await anext(places)
        path.write_text(json.dumps({"places": [A, A | {"name": "b"}]}))
        second = await anext(places)
        await places.aclose()
        return first, second

    first, second = asyncio.run(changes())
    assert first == (PLACE_A,)
    assert [place.name for place in second] == ["a", "b"]


def test_a_file_that_has_gone_is_a_failure_until_it_is_back(tmp_path):
    path = tmp_path / "places.json"
    source = FileSource(path, look_s=0)

    async def failure():
        with pytest.raises(SourceFailed) as failed:
            await anext(source.follow())
        path.write_text(json.dumps({"places": [A]}))
        return failed.value.message, await anext(source.follow())

    message, places = asyncio.run(failure())
    assert message == f"cannot read the places in {path}: No such file or directory"
    assert places == (PLACE_A,)
