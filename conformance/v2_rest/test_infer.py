"""Inference with JSON bodies (V2 REST: Inference Request and Response)."""

from typing import Any

import pytest
from conformance.bodies import OUTPUT0, OUTPUT1, SAMPLES, body_with, ok_body, one
from conformance.checks import check_ok, check_refused, output, same, values
from conformance.points import point
from conformance.rest import Rest


@point(21, "MUST", "infer on m: 200; OUTPUT0 [2,3,4,5], OUTPUT1 [0,1,2,3]")
def test_the_plain_request_is_answered(rest: Rest):
    response = rest.infer("m", ok_body())
    assert values(response, "OUTPUT0") == OUTPUT0
    assert values(response, "OUTPUT1") == OUTPUT1


@point(22, "MUST", "the answer: model_name m; every output has name, shape, datatype, data")
def test_the_answer_has_its_fields(rest: Rest):
    body = check_ok(rest.infer("m", ok_body()))
    assert body["model_name"] == "m"
    for tensor in body["outputs"]:
        assert isinstance(tensor["name"], str)
        assert tensor["shape"] == [1, 4]
        assert tensor["datatype"] == "FP32"
        assert len(tensor["data"]) == 4


@point(23, "MUST", 'id "42" comes back')
def test_the_id_comes_back(rest: Rest):
    assert check_ok(rest.infer("m", ok_body(id="42")))["id"] == "42"


@point(24, "MUST", "no id: 200, id absent or generated")
def test_the_id_may_be_left_out(rest: Rest):
    assert isinstance(check_ok(rest.infer("m", ok_body())).get("id", ""), str)


@point(25, "MUST", '/versions/1/infer: model_version "1"')
def test_a_version_can_be_asked_for(rest: Rest):
    assert check_ok(rest.infer("m/versions/1", ok_body()))["model_version"] == "1"


@point(26, "SHOULD", 'no version asked for: the highest, model_version "3"')
def test_the_highest_version_answers(rest: Rest):
    assert check_ok(rest.infer("m", ok_body()))["model_version"] == "3"


@point(27, "MUST", "outputs [OUTPUT1]: only OUTPUT1")
def test_only_the_requested_output_comes(rest: Rest):
    body = check_ok(rest.infer("m", ok_body(outputs=[{"name": "OUTPUT1"}])))
    assert [tensor["name"] for tensor in body["outputs"]] == ["OUTPUT1"]


@point(28, "MUST", "no outputs key: both outputs")
def test_all_outputs_come_when_none_is_requested(rest: Rest):
    body = check_ok(rest.infer("m", ok_body()))
    assert {tensor["name"] for tensor in body["outputs"]} == {"OUTPUT0", "OUTPUT1"}


@point(29, "MUST", "outputs [NOPE]: 400")
def test_an_unknown_output_is_refused(rest: Rest):
    check_refused(rest.infer("m", ok_body(outputs=[{"name": "NOPE"}])), naming="NOPE")


@point(30, "MUST", "data nested [[1,2,3,4]]: same as flat")
def test_nested_data_is_the_same_as_flat(rest: Rest):
    assert values(rest.infer("m", body_with(0, data=[[1, 2, 3, 4]])), "OUTPUT0") == OUTPUT0


@point(31, "MUST", "batch of 2 in one request: shapes [2,4]")
def test_a_batch_keeps_its_shape(rest: Rest):
    body = ok_body()
    for tensor in body["inputs"]:
        tensor.update(shape=[2, 4], data=[*tensor["data"], 10, 10, 10, 10])
    response = rest.infer("m", body)
    assert output(response, "OUTPUT0")["shape"] == [2, 4]
    assert output(response, "OUTPUT1")["shape"] == [2, 4]
    assert values(response, "OUTPUT0") == [*OUTPUT0, 20.0, 20.0, 20.0, 20.0]


@point(32, "MUST", "INPUT1 missing: 400, names INPUT1")
def test_a_missing_input_is_named(rest: Rest):
    body = ok_body()
    del body["inputs"][1]
    check_refused(rest.infer("m", body), naming="INPUT1")


@point(33, "MUST", "an unknown extra input: 400")
def test_an_unknown_input_is_refused(rest: Rest):
    body = ok_body()
    body["inputs"].append({"name": "EXTRA", "shape": [1], "datatype": "FP32", "data": [1]})
    check_refused(rest.infer("m", body), naming="EXTRA")


@point(34, "MUST", "datatype INT32 for an FP32 input: 400")
def test_another_datatype_than_the_models_is_refused(rest: Rest):
    check_refused(rest.infer("m", body_with(0, datatype="INT32")), naming="INPUT0")


@point(35, "MUST", "datatype FLOAT: 400")
def test_an_unknown_datatype_is_refused(rest: Rest):
    check_refused(rest.infer("m", body_with(0, datatype="FLOAT")), naming="FLOAT")


@point(36, "MUST", "shape [1,5]: 400")
def test_a_shape_the_model_does_not_take_is_refused(rest: Rest):
    body = body_with(0, shape=[1, 5], data=[1, 2, 3, 4, 5])
    check_refused(rest.infer("m", body), naming="INPUT0")


@point(37, "MUST", "three elements for [1,4]: 400")
def test_too_few_elements_are_refused(rest: Rest):
    check_refused(rest.infer("m", body_with(0, data=[1, 2, 3])), naming="INPUT0")


@point(38, "MUST", "five elements for [1,4]: 400")
def test_too_many_elements_are_refused(rest: Rest):
    check_refused(rest.infer("m", body_with(0, data=[1, 2, 3, 4, 5])), naming="INPUT0")


@point(39, "MUST", 'body {"inputs":: 400')
def test_broken_json_is_refused(rest: Rest):
    check_refused(rest.infer("m", b'{"inputs":'))


@point(40, "MUST", "body []: 400")
def test_a_body_that_is_no_object_is_refused(rest: Rest):
    check_refused(rest.infer("m", b"[]"))


@point(41, "MUST", "infer on an unknown model: 404")
def test_infer_on_an_unknown_model(rest: Rest):
    check_refused(rest.infer("nope", ok_body()), 404, naming="nope")


@point(42, "SHOULD", "batch 9 on max_batch_size 8: 400")
def test_a_batch_over_the_limit_is_refused(rest: Rest):
    body = ok_body()
    for tensor in body["inputs"]:
        tensor.update(shape=[9, 4], data=[1.0] * 36)
    check_refused(rest.infer("m", body))


@point(43, "MUST", "each datatype JSON can carry: round trip")
@pytest.mark.parametrize("datatype", SAMPLES)
def test_every_datatype_comes_back(rest: Rest, datatype: str):
    data, _ = SAMPLES[datatype]
    response = rest.infer("all", one(datatype, data))
    tensor = output(response, f"OUT_{datatype}")
    assert tensor["datatype"] == datatype
    assert tensor["shape"] == [3]
    assert same(values(response, f"OUT_{datatype}"), data)


@point(44, "MUST", "UINT64 18446744073709551615, INT64 -9223372036854775808: exact")
@pytest.mark.parametrize(
    ("datatype", "number"),
    [
        ("UINT64", 2**64 - 1),
        ("UINT64", 2**63 + 1),
        ("INT64", -(2**63)),
        ("INT64", 2**63 - 1),
        ("INT64", 2**53 + 1),
    ],
)
def test_64_bit_integers_are_exact(rest: Rest, datatype: str, number: int):
    assert values(rest.infer("all", one(datatype, [number])), f"OUT_{datatype}") == [number]


@point(45, "MUST", 'BYTES ["é😀",""]: exact')
def test_text_is_exact(rest: Rest):
    assert values(rest.infer("all", one("BYTES", ["é😀", ""])), "OUT_BYTES") == ["é😀", ""]


@point(46, "SHOULD", "UINT8 300: 400")
def test_a_number_over_its_range_is_refused(rest: Rest):
    check_refused(rest.infer("all", one("UINT8", [300])), naming="IN_UINT8")


@point(47, "SHOULD", "UINT8 -1: 400")
def test_a_negative_number_for_an_unsigned_type_is_refused(rest: Rest):
    check_refused(rest.infer("all", one("UINT8", [-1])), naming="IN_UINT8")


@point(48, "SHOULD", "INT32 1.5: 400")
def test_a_fraction_for_an_integer_is_refused(rest: Rest):
    check_refused(rest.infer("all", one("INT32", [1.5])), naming="IN_INT32")


@point(49, "MUST", "FP32 from integers: accepted")
def test_integers_are_floats_too(rest: Rest):
    assert values(rest.infer("all", one("FP32", [1, -2])), "OUT_FP32") == [1.0, -2.0]


@point(50, "SHOULD", 'BOOL "true" (string): 400')
def test_a_string_is_no_bool(rest: Rest):
    check_refused(rest.infer("all", one("BOOL", ["true"])), naming="IN_BOOL")


@point(51, "MUST", "an unknown top-level key is ignored")
def test_an_unknown_key_is_ignored(rest: Rest):
    response = rest.infer("m", ok_body(surprise={"a": [1]}, model_name="other"))
    assert values(response, "OUTPUT0") == OUTPUT0


@point(52, "MUST", "unknown parameters on request and input: 200")
@pytest.mark.parametrize("value", ["text", 7, 1.5, True])
def test_unknown_parameters_are_tolerated(rest: Rest, value: Any):
    body = body_with(0, parameters={"mine": value})
    assert values(rest.infer("m", {**body, "parameters": {"mine": value}}), "OUTPUT0") == OUTPUT0


@point(53, "SHOULD", "Content-Type text/plain or absent: 200")
@pytest.mark.parametrize("headers", [[("Content-Type", "text/plain")], []])
def test_any_content_type_is_tolerated(rest: Rest, headers: list[tuple[str, str]]):
    assert values(rest.infer("m", ok_body(), headers), "OUTPUT0") == OUTPUT0


@point(54, "SHOULD", "GET .../infer: 405")
def test_infer_takes_no_get(rest: Rest):
    check_refused(rest.get("/v2/models/m/infer"), 405)


@point(55, "MUST", "zero-element tensor, shape [0], data []: 200, shape [0]")
@pytest.mark.parametrize("datatype", SAMPLES)
def test_a_tensor_may_be_empty(rest: Rest, datatype: str):
    tensor = output(rest.infer("all", one(datatype, [])), f"OUT_{datatype}")
    assert tensor["shape"] == [0]
    assert tensor["data"] == []


@point(56, "SHOULD", 'parameters {"triton_x":1}: 400')
def test_reserved_parameters_are_refused(rest: Rest):
    check_refused(rest.infer("m", ok_body(parameters={"triton_x": 1})), naming="triton_x")
