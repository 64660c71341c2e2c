"""The inference request object: its shapes, inputs, outputs, id and parameters."""

from typing import Any

import pytest
from conformance.bodies import OUTPUT0, body_with, ok_body, one, one_binary
from conformance.checks import check_ok, check_refused, output, values
from conformance.points import point
from conformance.rest import Rest

UNKNOWN_VALUES: list[Any] = ["text", 7, 1.5, True, None, [1], {"a": {"b": [1]}}]


@point("S39", "SHOULD", "JSON schema, RequestInput.shape: one -1 is resolved from the data")
@pytest.mark.parametrize("data", [[1, 2, 3, 4], "AACAPwAAAEAAAEBAAACAQA=="])
def test_one_unknown_dim_is_worked_out(rest: Rest, data: list[int] | str):
    response = rest.infer("m", body_with(0, shape=[-1, 4], data=data))
    assert output(response, "OUTPUT0")["shape"] == [1, 4]
    assert values(response, "OUTPUT0") == OUTPUT0
    assert output(rest.infer("all", one("BYTES", ["a", "b"], [-1])), "OUT_BYTES")["shape"] == [2]


@point("S40", "MUST", "-1 that cannot be resolved, or another negative dim: 400")
@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([-1, -1], [1, 2, 3, 4]),
        ([-1, 4], [1, 2, 3]),
        ([-1, 0], []),
        ([-2, 4], [1, 2, 3, 4]),
        ([1, -4], [1, 2, 3, 4]),
        ([-1, -4], [1, 2, 3, 4]),
    ],
)
def test_unknown_dims_that_stay_unknown_are_refused(rest: Rest, shape: list[int], data: list[int]):
    check_refused(rest.infer("m", body_with(0, shape=shape, data=data)), naming="INPUT0")


@point("S41", "MUST", "-1 in a binary input, or a base64 BYTES input: 400")
def test_a_binary_input_says_its_shape(rest: Rest):
    body = one_binary("FP32", -1, 8)
    check_refused(rest.infer_binary("all", body, bytes(8)), naming="IN_FP32")
    check_refused(rest.infer("all", one("BYTES", "AQAAAGE=", [-1])), naming="IN_BYTES")


@point("S42", "MUST", "V2 REST, Request Input: dims up to 2^64-1 that do not fit are 400, no wrap")
@pytest.mark.parametrize(
    "shape",
    [
        [2**63],
        [2**64 - 1],
        [2**64],
        [2**63 - 1],
        [2**200],
        [2**32, 2**32],
        [2**62, 4],
        [2**32 + 1, 2**32],
        [2**31, 2**31, 4, 2**31],
        [0, 2**64 - 1],
    ],
)
@pytest.mark.parametrize("data", [[], [1.0]])
def test_huge_dims_are_refused(rest: Rest, shape: list[int], data: list[float]):
    check_refused(rest.infer("all", one("FP32", data, shape)), naming="IN_FP32")


@point("S43", "MUST", "the same with a binary input")
@pytest.mark.parametrize("shape", [[2**62], [2**64 - 1], [2**32, 2**32], [2**30, 2**34]])
@pytest.mark.parametrize("size", [0, 4])
def test_huge_dims_of_a_blob_are_refused(rest: Rest, shape: list[int], size: int):
    body = one_binary("FP32", 1, size)
    body["inputs"][0]["shape"] = shape
    check_refused(rest.infer_binary("all", body, bytes(size)), naming="IN_FP32")


@pytest.mark.parametrize(
    "shape", [[1.5, 4], ["1", 4], [True, 4], [None, 4], [[1, 4]], "1,4", 4, None, {}, []]
)
@point("S44", "MUST", "V2 REST, Request Input: a shape that is no array of integers: 400")
def test_dims_are_integers(rest: Rest, shape: Any):
    check_refused(rest.infer("m", body_with(0, shape=shape)), naming="shape")


@point("S45", "MUST", "V2 REST, Request Input: name, shape, datatype or data missing: 400")
@pytest.mark.parametrize("key", ["name", "shape", "datatype", "data"])
def test_every_part_of_an_input_is_needed(rest: Rest, key: str):
    body = ok_body()
    del body["inputs"][1][key]
    check_refused(rest.infer("m", body))


@point("S46", "MUST", "JSON schema: a part of another JSON type: 400")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 1),
        ("name", None),
        ("datatype", 1),
        ("datatype", None),
        ("data", 1),
        ("data", None),
        ("data", True),
        ("data", {}),
        ("parameters", []),
        ("parameters", "a"),
    ],
)
def test_parts_of_an_input_have_their_types(rest: Rest, key: str, value: Any):
    check_refused(rest.infer("m", body_with(0, **{key: value})))


@point("S47", "MUST", "JSON schema: inputs missing, empty, no array, or of no objects: 400")
@pytest.mark.parametrize(
    "body", [{}, {"inputs": []}, {"inputs": None}, {"inputs": {}}, {"inputs": [1]}, {"inputs": "a"}]
)
def test_inputs_are_an_array_of_objects(rest: Rest, body: dict[str, Any]):
    check_refused(rest.infer("m", body))


@point("S48", "SHOULD", "no inputs for a model that needs none: 200")
def test_a_model_without_required_inputs_takes_none(rest: Rest):
    assert check_ok(rest.infer("all", {"inputs": []}))["model_name"] == "all"


@point("S49", "MUST", "the same input twice: 400")
@pytest.mark.parametrize("count", [2, 3])
def test_an_input_comes_once(rest: Rest, count: int):
    body = ok_body()
    body["inputs"][count - 1 :] = [body["inputs"][0]] * (count - 1)
    check_refused(rest.infer("m", body), naming="INPUT0")


@point("S50", "SHOULD", "the order of inputs is free")
def test_inputs_come_in_any_order(rest: Rest):
    body = ok_body()
    body["inputs"].reverse()
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S51", "SHOULD", "outputs []: all; an output twice: 400")
def test_an_output_is_requested_once(rest: Rest):
    everything = check_ok(rest.infer("m", ok_body(outputs=[])))
    assert {tensor["name"] for tensor in everything["outputs"]} == {"OUTPUT0", "OUTPUT1"}
    twice = rest.infer("m", ok_body(outputs=[{"name": "OUTPUT1"}] * 2))
    check_refused(twice, naming="OUTPUT1")


@point("S52", "MUST", "JSON schema, outputs: no array of objects with a name: 400")
@pytest.mark.parametrize("outputs", ["OUTPUT0", {}, [1], ["OUTPUT0"], [{}], [{"name": 1}]])
def test_outputs_are_an_array_of_objects(rest: Rest, outputs: Any):
    check_refused(rest.infer("m", ok_body(outputs=outputs)))


@point("S53", "MUST", "V2 REST, id: any text comes back as it was")
@pytest.mark.parametrize("text", ["é😀", 'a"b\\c', "a b", "x" * 1000, "\u0000"])
def test_any_id_comes_back(rest: Rest, text: str):
    assert check_ok(rest.infer("m", ok_body(id=text)))["id"] == text


@point("S54", "SHOULD", 'id null or "": as if absent')
@pytest.mark.parametrize("absent", [None, ""])
def test_an_empty_id_is_none(rest: Rest, absent: str | None):
    assert "id" not in check_ok(rest.infer("m", ok_body(id=absent)))


@point("S55", "MUST", "JSON schema, id: anything but a string: 400")
@pytest.mark.parametrize("wrong", [42, 1.5, True, [], {}])
def test_an_id_is_a_string(rest: Rest, wrong: Any):
    check_refused(rest.infer("m", ok_body(id=wrong)))


@point("S56", "MUST", "V2 REST, Parameters: strings, numbers and booleans are taken")
@pytest.mark.parametrize("value", ["text", "", 7, -(2**63), 2**63 - 1, 2**70, 1.5, True, False])
def test_parameters_of_the_allowed_kinds(rest: Rest, value: Any):
    assert values(rest.infer("m", ok_body(parameters={"mine": value})), "OUTPUT0") == OUTPUT0


@point("S57", "SHOULD", "a request parameter that is an object or array: 400 naming it")
@pytest.mark.parametrize("value", [{}, {"a": 1}, [], [1]])
def test_parameters_of_other_kinds_are_refused(rest: Rest, value: Any):
    check_refused(rest.infer("m", ok_body(parameters={"mine": value})), naming="mine")


@point("S58", "SHOULD", "null is absent: a parameter, and parameters as a whole")
@pytest.mark.parametrize("parameters", [None, {"mine": None}])
def test_null_parameters_are_absent(rest: Rest, parameters: Any):
    assert values(rest.infer("m", ok_body(parameters=parameters)), "OUTPUT0") == OUTPUT0
    body = body_with(0, parameters=parameters)
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S59", "SHOULD", "JSON schema: unknown parameters of any kind on inputs and outputs")
@pytest.mark.parametrize("value", UNKNOWN_VALUES)
def test_tensor_parameters_of_any_kind_are_tolerated(rest: Rest, value: Any):
    outputs = [{"name": "OUTPUT0", "parameters": {"mine": value}}]
    body = {**body_with(0, parameters={"mine": value}), "outputs": outputs}
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S60", "MUST", "V2 REST, Parameters: anything but an object: 400")
@pytest.mark.parametrize("parameters", [[], "a", 1, True])
def test_parameters_are_an_object(rest: Rest, parameters: Any):
    check_refused(rest.infer("m", ok_body(parameters=parameters)))


@point("S61", "SHOULD", "unknown keys in inputs and outputs are ignored")
def test_unknown_keys_of_tensors_are_ignored(rest: Rest):
    body = body_with(0, surprise=[{}])
    body["outputs"] = [{"name": "OUTPUT0", "surprise": {}}]
    assert values(rest.infer("m", body), "OUTPUT0") == OUTPUT0


@point("S62", "MUST", "batch sizes that differ between inputs: 400")
def test_inputs_share_their_batch_size(rest: Rest):
    check_refused(rest.infer("m", body_with(0, shape=[2, 4], data=[1] * 8)))


@point("S63", "MUST", "V2 REST, $inference_response: shapes are integers, model_version a string")
def test_the_answer_has_the_right_json_types(rest: Rest):
    body = check_ok(rest.infer("mymodel/versions/1", MYMODEL))
    assert body["model_version"] == "1"
    assert all(type(dim) is int for tensor in body["outputs"] for dim in tensor["shape"])


MYMODEL = {
    "inputs": [
        {"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
        {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True, False, True]},
    ]
}
