"""Texts of errors about JSON, with a value of another kind than expected, that programs compare."""

import http.client
import json

import pytest

TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}
SIZED = {key: value for key, value in TENSOR.items() if key != "data"} | {
    "parameters": {"binary_data_size": "8"}
}
INFER, GENERATE = "models/kinds/infer", "models/kinds/generate"


def of(**members):
    """A request whose input has these members."""
    return {"inputs": [TENSOR | members]}


def asking(**members):
    """A request with these members."""
    return of() | members


def without(name):
    """A request whose input lacks a member."""
    return {"inputs": [{key: value for key, value in TENSOR.items() if key != name}]}


def read(name, kind):
    return f"Unable to parse '{name}': attempt to access JSON non-{kind} as {kind}: "


def lacks(name):
    return f"Unable to parse '{name}': attempt to access non-existing object member '{name}': "


def access(kind):
    return f"attempt to access JSON non-{kind} as {kind}: "


UNSIGNED = "unsigned-integer"
NUMBER = "Unable to parse 'data': attempt to access JSON non-number as double: input 'INPUT0'"
TEXT = "Unable to parse JSON bytes array: attempt to access JSON non-string as string: "
BROKEN = "failed to parse the request JSON buffer: "
REFUSED = [
    (INFER, [], lacks("inputs")),
    (INFER, {}, lacks("inputs")),
    (INFER, "text", lacks("inputs")),
    (INFER, {"inputs": {}}, read("inputs", "array")),
    (INFER, {"inputs": None}, read("inputs", "array")),
    (INFER, without("name"), lacks("name")),
    (INFER, without("datatype"), lacks("datatype")),
    (INFER, without("shape"), lacks("shape")),
    (INFER, of(name=1), read("name", "string")),
    (INFER, of(shape=[-2]), read("shape", UNSIGNED)),
    (INFER, of(shape=[-1, -1]), read("shape", UNSIGNED)),
    (INFER, of(shape=[1.5]), read("shape", UNSIGNED)),
    (INFER, of(shape=["2"]), read("shape", UNSIGNED)),
    (INFER, of(data=1), read("data", "array")),
    (INFER, of(data=None), read("data", "array")),
    (INFER, of(data=[True, 1]), NUMBER),
    (INFER, of(data=["1.5", 1]), NUMBER),
    (INFER, of(data=[{}, 1]), NUMBER),
    (INFER, of(data=[1e39, 1]), "input 'INPUT0': element 0 is 1E+39"),
    (INFER, of(datatype="INT32", data=[1.5, 1]), read("data", "signed-integer")),
    (INFER, of(datatype="INT64", data=[2**63, 1]), read("data", "signed-integer")),
    (INFER, of(datatype="INT8", data=[200, 1]), "input 'INPUT0': element 0 is 200"),
    (INFER, of(datatype="UINT8", data=[-1, 1]), read("data", UNSIGNED)),
    (INFER, of(datatype="UINT8", data=[256, 1]), "input 'INPUT0': element 0 is 256"),
    (INFER, of(datatype="UINT64", data=[2**64, 1]), read("data", UNSIGNED)),
    (INFER, of(datatype="BOOL", data=["true", 1]), read("data", "boolean")),
    (INFER, of(datatype="BYTES", data=[1, "a"]), TEXT),
    (INFER, of(datatype="BYTES", data=[None, "a"]), TEXT),
    (INFER, asking(id=1), read("id", "string")),
    (INFER, asking(outputs="x"), read("outputs", "array")),
    (INFER, asking(outputs=["x"]), lacks("name")),
    (
        INFER, asking(outputs=[{"name": "O", "parameters": {"classification": "1"}}]),
        f"Unable to set 'classification': {access(UNSIGNED)}",
    ),
    (
        INFER, asking(outputs=[{"name": "O", "parameters": {"binary_data": 1}}]),
        read("binary_data", "boolean"),
    ),
    (INFER, asking(parameters=[]), "failed to get request params.: attempt to get members for "),
    (INFER, asking(parameters={"priority": "1"}), read("priority", UNSIGNED)),
    (INFER, asking(parameters={"timeout": -1}), read("timeout", UNSIGNED)),
    (INFER, asking(parameters={"sequence_start": "x"}), read("sequence_start", "boolean")),
    (INFER, asking(parameters={"sequence_id": 1.5}), read("sequence_id", "string")),
    (INFER, asking(parameters={"sequence_id": -5}), read("sequence_id", "string")),
    (INFER, {"inputs": [SIZED]}, read("binary_data_size", UNSIGNED)),
    (GENERATE, {"INPUT0": [1, 2], "parameters": 1}, "Expected JSON object for keyword: "
     "'parameters'"),
    (GENERATE, {"INPUT0": ["a", 2]}, NUMBER),
    ("repository/index", {"ready": 1}, access("boolean")),
    ("repository/index", b"{1", BROKEN),
    ("repository/models/m/load", {"parameters": {"config": 1}}, access("string")),
    ("repository/models/m/load", b"{1", BROKEN),
    ("repository/models/m/unload", {"parameters": {"unload_dependents": "x"}}, access("boolean")),
    ("trace/setting", {"trace_rate": 1}, access("string")),
    ("trace/setting", {"trace_level": "x"}, access("array")),
    ("trace/setting", {"trace_level": [1]}, access("string")),
    ("trace/setting", b"", BROKEN),
    ("logging", {"log_info": 1}, access("boolean")),
    ("logging", {"log_verbose_level": -1}, access(UNSIGNED)),
    ("systemsharedmemory/region/r/register", b"{1", BROKEN),
    ("systemsharedmemory/region/r/register", {"key": 1, "byte_size": 1}, access("string")),
    ("systemsharedmemory/region/r/register", {"key": "/k", "byte_size": "1"}, access(UNSIGNED)),
]  # fmt: skip


@pytest.fixture
def post(explicit_server, write_identity):
    """post(path, body) asks a server with a model "kinds"; it returns the status and the body."""

    def send(path, body):
        connection = http.client.HTTPConnection(explicit_server.http)
        connection.request("POST", f"/v2/{path}", body)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    write_identity("kinds", "2")
    assert send("repository/models/kinds/load", b"")[0] == 200
    return send


@pytest.mark.parametrize(
    "row", REFUSED, ids=[f"{path}-{str(body)[:60]}" for path, body, _ in REFUSED]
)
def test_a_value_of_another_kind_is_told_in_known_words(post, row):
    path, body, words = row
    status, told = post(path, body if isinstance(body, bytes) else json.dumps(body))
    assert status == 400
    assert json.loads(told)["error"].startswith(words), told
