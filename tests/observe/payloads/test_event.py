"""Payloads as CloudEvents: their attributes, as headers and as lines of JSON."""

import base64
import json

import pytest

from inferd.observe.payloads.event import REQUEST, PayloadEvent, as_headers, as_line


def event(data=b"{}", json_size=None, **more):
    given = {
        "id": "i",
        "type": REQUEST,
        "seconds": 1_769_860_800.25,
        "protocol": "http",
        "model": "m",
        "version": "2",
        "data": data,
        "json_size": json_size,
        "full_size": len(data),
    }
    return PayloadEvent(**(given | more))


def test_attributes_say_what_it_is_and_when_it_was():
    assert event().attributes() == {
        "specversion": "1.0",
        "id": "i",
        "type": REQUEST,
        "time": "2026-01-31T12:00:00.250Z",
        "datacontenttype": "application/json",
        "protocol": "http",
        "modelname": "m",
        "modelversion": "2",
    }


def test_binary_data_and_cut_data_have_attributes_of_their_own():
    found = event(b"{}1234", 2, full_size=99, version="").attributes()
    assert found["datacontenttype"] == "application/octet-stream"
    assert found["inferenceheadercontentlength"] == "2"
    assert (found["truncated"], found["fullsize"]) == ("true", "99")
    assert "modelversion" not in found


def test_names_of_attributes_are_those_that_cloudevents_allow():
    names = event(b"x", 1, full_size=9).attributes()
    assert all(name.isalnum() and name.islower() and len(name) <= 24 + 4 for name in names)


@pytest.mark.parametrize(
    ("value", "header"),
    [("a/b:c", "a/b:c"), ("a b", "a%20b"), ('"%', "%22%25"), ("ü\n", "%C3%BC%0A")],
)
def test_values_are_escaped_in_headers(value, header):
    assert as_headers({"id": value, "datacontenttype": "t"}) == {
        "ce-id": header,
        "Content-Type": "t",
    }


@pytest.mark.parametrize("data", [b'{"a": 1}', b'{\n "a":\r\n [1,\n2]}', '{"a": "ü"}'.encode()])
def test_json_is_in_the_line_itself(data):
    line = b"".join(as_line(event(data), event(data).attributes()))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line)["data"] == json.loads(data)


@pytest.mark.parametrize(
    "one",
    [
        event(b"{}\n12", 2),
        event(b'{"a": NaN}'),
        event(b'{"a": -Infinity}'),
        event(b'{"a": "\xff"}'),
        event(b'{"a"', full_size=9),
        event(b""),
    ],
)
def test_all_else_is_in_base64(one):
    line = json.loads(b"".join(as_line(one, one.attributes())))
    assert base64.b64decode(line["data_base64"]) == one.data
    assert "data" not in line
