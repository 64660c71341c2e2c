"""The words for JSON of another kind than expected, by what msgspec says of it."""

import msgspec
import pytest

from inferd.wire.json.kinds import not_a, unreadable, why_no_request, why_unfit


class Part(msgspec.Struct):
    name: str
    shape: list[int]
    data: float = 0
    flag: bool | None = None
    parameters: dict[str, int] | None = None


class Whole(msgspec.Struct):
    inputs: list[Part]
    parameters: dict[str, int] | None = None


def error_for(values):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(values, Whole)
    return caught.value


def lacks(name):
    return f"Unable to parse '{name}': attempt to access non-existing object member '{name}'"


def in_part(**members):
    return {"inputs": [{"name": "a", "shape": [1]} | members]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], lacks("inputs")),
        ({}, lacks("inputs")),
        ({"inputs": 1}, unreadable("inputs", "array")),
        ({"inputs": [1]}, lacks("name")),
        ({"inputs": [{"name": "a"}]}, lacks("shape")),
        (in_part(name=1), unreadable("name", "string")),
        (in_part(shape=[None]), unreadable("shape", "unsigned-integer")),
        (in_part(flag=1), unreadable("flag", "boolean")),
        (in_part(data="a"), ""),
        (in_part(parameters=1), ""),
        ({"inputs": [], "parameters": 1}, "failed to get request params.: attempt to get members "
         "for non-object"),
    ],
)  # fmt: skip
def test_a_request_that_is_none(values, words):
    assert why_no_request(error_for(values)) == words


def test_kinds():
    assert not_a("number") == "attempt to access JSON non-number as double"
    assert why_unfit(error_for(in_part(name=1))) == not_a("string")
    assert why_unfit(error_for([])) == ""
    assert why_unfit(msgspec.ValidationError("something else")) == ""
    assert why_no_request(msgspec.ValidationError("something else")) == ""
