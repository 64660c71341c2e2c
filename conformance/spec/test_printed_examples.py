"""The requests and answers the specs print, sent and expected as printed."""

import pytest
from conformance.checks import check_ok, check_refused, output
from conformance.points import point
from conformance.rest import Rest

OVERVIEW_REQUEST = b"""{
  "id": "42",
  "inputs": [
    {
      "name": "input0",
      "shape": [2, 2],
      "datatype": "UINT32",
      "data": [1, 2, 3, 4]
    },
    {
      "name": "input1",
      "shape": [3],
      "datatype": "BOOL",
      "data": [true, false, true]
    }
  ],
  "outputs": [
    {
      "name": "output0"
    }
  ]
}
"""
REST_REQUEST = b"""{
"id" : "42",
"inputs" : [
{
"name" : "input0",
"shape" : [ 2, 2 ],
"datatype" : "UINT32",
"data" : [ 1, 2, 3, 4 ]
},
{
"name" : "input1",
"shape" : [ 3 ],
"datatype" : "BOOL",
"data" : [ true ]
}
],
"outputs" : [
{
"name" : "output0"
}
]
}"""


@point("S1", "MUST", "OIP overview, Inference Example: the printed request and its output0")
def test_the_printed_inference_example(rest: Rest):
    response = rest.infer("mymodel", OVERVIEW_REQUEST)
    body = check_ok(response)
    assert body["id"] == "42"
    tensor = output(response, "output0")
    assert tensor["shape"] == [3, 2]
    assert tensor["datatype"] == "FP32"
    assert tensor["data"] == pytest.approx([1.0, 1.1, 2.0, 2.1, 3.0, 3.1])


@point("S2", "SHOULD", "OIP overview, Inference Example: FP32 data are printed as 1.1, 2.0")
def test_floats_are_written_as_the_examples_print_them(rest: Rest):
    response = rest.infer("mymodel", OVERVIEW_REQUEST)
    assert response.status == 200
    assert b"[1.0,1.1,2.0,2.1,3.0,3.1]" in response.body.replace(b" ", b"")


@point("S3", "MUST", "OIP overview, Model Metadata Example: the printed answer")
def test_the_printed_metadata_example(rest: Rest):
    body = check_ok(rest.get("/v2/models/mymodel"))
    assert isinstance(body.pop("platform"), str)
    assert body == {
        "name": "mymodel",
        "versions": ["1", "2"],
        "inputs": [
            {"name": "input0", "datatype": "UINT32", "shape": [2, 2]},
            {"name": "input1", "datatype": "BOOL", "shape": [3]},
        ],
        "outputs": [{"name": "output0", "datatype": "FP32", "shape": [3, 2]}],
    }


@point("S4", "MUST", "OIP overview, Server Ready Example: application/json with ready=true")
def test_the_printed_ready_example(rest: Rest):
    response = rest.get("/v2/health/ready")
    assert check_ok(response)["ready"] is True
    assert response.header("content-type") == "application/json"


@point("S5", "MUST", "V2 REST, $ready_server_response: live")
def test_the_ready_answer_of_the_rest_text(rest: Rest):
    assert check_ok(rest.get("/v2/health/ready"))["live"] is True


@point("S6", "MUST", "V2 REST, printed request: one value for shape [3] is refused")
def test_the_misprinted_request_is_refused(rest: Rest):
    check_refused(rest.infer("mymodel", REST_REQUEST), naming="input1")


@point("S7", "MUST", "V2 REST, Tensor Data: [[1,2],[4,5]] is [1,2,4,5], whatever the grouping")
@pytest.mark.parametrize(
    "data", [[[1, 2], [4, 5]], [1, 2, 4, 5], [[[1], [2]], [[4], [5]]], [[1, 2, 4], [5]]]
)
def test_natural_and_flattened_forms_are_the_same(rest: Rest, data: list):
    inputs = [
        {"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": data},
        {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True, False, True]},
    ]
    assert output(rest.infer("mymodel", {"inputs": inputs}), "output0")["shape"] == [3, 2]
    body = {"name": "IN_INT32", "shape": [4], "datatype": "INT32", "data": data}
    found = output(rest.infer("all", {"inputs": [body]}), "OUT_INT32")
    assert found["data"] == [1, 2, 4, 5]
