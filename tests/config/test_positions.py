"""Where fields stand in a config.pbtxt."""

import pytest

from inferd.config.positions import Position, Positions

TEXT = """\
# name: "not here"
name: "m"   # max_batch_size: 3
max_batch_size: 8
input [
  { name: 'x' dims: [ 1, -1,
      3 ] reshape { shape: [] } },
  { name: "{" dims: 4 dims: 5 }
]
input < name: "z" data_type: TYPE_FP32; >
parameters { key: "a\\"b" value { string_value: "1" "2" } }
parameters: [{ key: "c" value: { string_value: "}" } }, { key: "d" value { } }]
dynamic_batching {
\tpriority_queue_policy { key: 7 value { max_queue_size: 1 } }
}
"""

PLACES = {
    ("name",): (2, 1),
    ("max_batch_size",): (3, 1),
    ("input",): (4, 1),
    ("input", 0): (5, 3),
    ("input", 0, "dims", 0): (5, 23),
    ("input", 0, "name"): (5, 5),
    ("input", 0, "dims"): (5, 15),
    ("input", 0, "dims", 1): (5, 26),
    ("input", 0, "dims", 2): (6, 7),
    ("input", 0, "reshape"): (6, 11),
    ("input", 0, "reshape", "shape"): (6, 21),
    ("input", 1): (7, 3),
    ("input", 1, "dims", 1): (7, 23),
    ("input", 2, "data_type"): (9, 19),
    ("parameters", 'a"b'): (10, 1),
    ("parameters", "c"): (11, 14),
    ("parameters", "d"): (11, 57),
    ("parameters", "c", "string_value"): (11, 34),
    ("dynamic_batching", "priority_queue_policy", 7): (13, 2),
    ("dynamic_batching", "priority_queue_policy", 7, "max_queue_size"): (13, 41),
}

ABSENT = {
    ("backend",): None,
    ("input", 0, "data_type"): (5, 3),
    ("input", 1, "reshape", "shape", 3): (7, 3),
    ("input", 9, "name"): (4, 1),
    ("parameters", "e"): (10, 1),
    ("dynamic_batching", "max_queue_delay_microseconds"): (12, 1),
    ("dynamic_batching", "priority_queue_policy", 8): (13, 2),
}


@pytest.mark.parametrize(("path", "place"), PLACES.items())
def test_a_field_is_where_its_name_or_its_value_of_several_begins(path, place):
    assert Positions(TEXT).of(path) == place


@pytest.mark.parametrize(("path", "place"), ABSENT.items())
def test_a_field_that_is_not_there_is_where_it_would_be(path, place):
    assert Positions(TEXT).of(path) == place


def test_a_line_is_that_of_the_text():
    assert Positions(TEXT).line(3) == "max_batch_size: 8"
    assert Positions(TEXT).line(len(TEXT.splitlines()) + 1) == ""


@pytest.mark.parametrize(
    ("place", "gone"),
    [
        (("max_batch_size",), "max_batch_size: 8"),
        (Position(3, 17), "max_batch_size: 8"),
        (("parameters", "c", "string_value"), 'string_value: "}"'),
        (Position(13, 57), "max_queue_size: 1"),
        (Position(13, 3), "priority_queue_policy { key: 7 value { max_queue_size: 1 } }"),
    ],
)
def test_a_field_is_blanked_out_where_it_is(place, gone):
    rest = Positions(TEXT).without(place)
    assert rest.text == TEXT.replace(gone, " " * len(gone))
    assert TEXT[rest.begin : rest.end] == gone


@pytest.mark.parametrize("place", [("backend",), Position(1, 1), Position(99, 1)])
def test_where_there_is_no_field_nothing_is_blanked_out(place):
    assert Positions(TEXT).without(place) is None


@pytest.mark.parametrize(
    "text",
    ["a {", "a: [1", "}", "a", "a:", "{ }", 'a: "', "a { b: ] }", "a" + "{a" * 200 + "}" * 200],
)
def test_a_text_that_ends_or_goes_on_oddly_is_read_up_to_there(text):
    positions = Positions(f"name: 'm'\n{text}")
    assert not positions.is_whole
    assert positions.of(("name",)) == (1, 1)


def test_a_block_without_an_end_is_known_by_its_beginning():
    assert Positions("a: 1\nb { c { } \nd: 2").unclosed == (2, 1)
    assert Positions("a: 1 }").unclosed is None
    assert Positions("a { b: 1").without(("a",)) is None


def test_an_empty_text_has_no_fields():
    assert Positions("").is_whole
    assert Positions("# only this\n").of(("name",)) is None
