"""The examples the protocol's documents print, sent as they stand there."""

import json

import pytest

INFER = "/v2/models/mymodel/infer"
HEADERS = {"Host": "localhost:8000", "Content-Type": "application/json"}
REQUEST = """
{
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
      "data" : [ true, false, true ]
    }
  ],
  "outputs" : [
    {
      "name" : "output0"
    }
  ]
}
"""


def test_the_inference_example(ask, printed_values):
    answer = ask(INFER, REQUEST, HEADERS)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert answer.json() == {
        "id": "42",
        "model_name": "mymodel",
        "model_version": "2",
        "outputs": [
            {"name": "output0", "shape": [3, 2], "datatype": "FP32", "data": printed_values}
        ],
    }


@pytest.mark.parametrize(("token", "version"), [("1", "1"), ("2", "2"), ("v1", "1")])
def test_the_inference_example_to_one_version(ask, token, version):
    answer = ask(f"/v2/models/mymodel/versions/{token}/infer", REQUEST, HEADERS)
    assert answer.json()["model_version"] == version


@pytest.mark.parametrize("data", ["[ [ 1, 2 ], [ 3, 4 ] ]", "[ 1, 2, 3, 4 ]", "[[[1],[2,3,4]]]"])
def test_nested_and_flat_data_are_the_same(ask, printed_values, data):
    answer = ask(INFER, REQUEST.replace("[ 1, 2, 3, 4 ]", data), HEADERS)
    assert answer.json()["outputs"][0]["data"] == printed_values


def test_one_value_for_a_shape_of_three_is_refused(ask):
    answer = ask(INFER, REQUEST.replace("[ true, false, true ]", "[ true ]"), HEADERS)
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/json"
    [error] = answer.json().values()
    for word in ("input1", "3", "1"):
        assert word in error


def test_the_metadata_example(ask):
    # The printed platform is that of another framework: it is for information only.
    answer = ask("/v2/models/mymodel", headers={"Host": "localhost:8000"})
    assert answer.status == 200
    assert answer.json() == {
        "name": "mymodel",
        "versions": ["1", "2"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "input0", "datatype": "UINT32", "shape": [2, 2]},
            {"name": "input1", "datatype": "BOOL", "shape": [3]},
        ],
        "outputs": [{"name": "output0", "datatype": "FP32", "shape": [3, 2]}],
    }


def test_the_server_ready_example(ask):
    answer = ask("/v2/health/ready", headers={"Host": "localhost:8000"})
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["ready"] is True


def test_the_binary_example_of_the_extension(ask):
    """Binary input and output of one tensor, JSON of another (Binary Tensor Data extension)."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "input0",
                    "shape": [2, 2],
                    "datatype": "UINT32",
                    "parameters": {"binary_data_size": 16},
                },
                {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True, False, True]},
            ],
            "outputs": [{"name": "output0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    answer = ask(INFER, head + bytes(16), headers)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    size = int(answer.headers["Inference-Header-Content-Length"])
    [output] = json.loads(answer.body[:size])["outputs"]
    assert output["parameters"] == {"binary_data_size": 24}
    assert "data" not in output
    assert len(answer.body) == size + 24
