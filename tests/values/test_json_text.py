"""JSON as inputs."""

import numpy as np
import pytest

from inferd.errors import InvalidRequest
from inferd.values.source import read_json


def read(text):
    return read_json(text.encode(), "it")


def test_numbers_take_the_smallest_kind_that_has_them_all():
    assert read("[1,2]")[""].array.dtype == np.int64
    assert read("[1,18446744073709551615]")[""].array.dtype == np.uint64
    assert read("[1,2.0]")[""].array.dtype == np.float64
    assert read("[[],[]]")[""].array.shape == (2, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[[1],[1,2]]", "rows of different lengths: 1, 2"),
        ("[[1],2]", "mixes lists and values"),
        ('[1,"a"]', "mixes or has numbers, strings"),
        ("[null]", "mixes or has null"),
        ("[1,true]", "mixes or has booleans, numbers"),
        ("[-1,18446744073709551615]", "beyond 64 bits"),
        ("[1" + "0" * 400 + ",1.5]", "beyond what float64"),
        ('{"x": [{}]}', "it: 'x' mixes or has objects"),
        ('{"inputs": [1]}', "an object with a name"),
        ('{"inputs": [{"name": "x", "datatype": "INT9", "data": []}]}', "datatype 'INT9'"),
        ('{"inputs": [{"name": "x", "datatype": "INT8"}]}', "has no data"),
        ('{"inputs": [{"name": "x", "datatype": "INT8", "data": [300]}]}', "300 is no INT8"),
        (
            '{"inputs": [{"name": "x", "datatype": "INT8", "shape": [3], "data": [1]}]}',
            "does not fit its datatype and shape",
        ),
    ],
)
def test_what_is_no_input_is_named(text, said):
    with pytest.raises(InvalidRequest, match=said.replace("[", r"\[")):
        read(text)


def test_deep_nesting_is_refused():
    with pytest.raises(InvalidRequest):
        read("[" * 100_000)
