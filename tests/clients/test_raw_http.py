"""What no client library sends: requests written by hand, over http.client."""

import base64
import json

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16}


def one_input(datatype, shape, data, **more):
    """Return the body of a request with one input."""
    tensor = {"name": "INPUT0", "shape": shape, "datatype": datatype, "data": data}
    return json.dumps({"inputs": [tensor], **more})


@pytest.mark.parametrize("datatype", DTYPES)
def test_halves_as_json_are_rounded_to_the_nearest(ask, datatype):
    numbers = [0, -0.0, 1, 0.1, 3.14159265, 1.00390625, 1.01171875, -65504, 6e-8, 1e-45]
    answer = ask(f"/v2/models/flat_{datatype}/infer", one_input(datatype, [1, 10], [numbers]))
    assert answer.status == 200
    [output] = answer.json()["outputs"]
    got = np.array(output["data"]).astype(DTYPES[datatype])
    expected = np.array(numbers).astype(DTYPES[datatype])
    assert output["datatype"] == datatype
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("datatype", DTYPES)
def test_halves_beyond_their_range_are_refused(ask, datatype):
    answer = ask(f"/v2/models/flat_{datatype}/infer", one_input(datatype, [1, 1], [1e39]))
    assert answer.status == 400
    assert "INPUT0" in answer.json()["error"]


@pytest.mark.slow
def test_halves_as_json_can_be_turned_off(start, ask):
    port = start("--json-half-floats=refuse").http_port
    for datatype in DTYPES:
        path = f"/v2/models/flat_{datatype}/infer"
        answer = ask(path, one_input(datatype, [1, 1], [1]), port=port)
        assert answer.status == 400
        assert datatype in answer.json()["error"]


def test_data_as_base64_of_each_datatype(ask, sample):
    if sample.datatype == "BYTES":
        items = sample.array.ravel()
        raw = b"".join(len(item).to_bytes(4, "little") + item for item in items)
    else:
        raw = sample.array.tobytes()
    data = base64.b64encode(raw).decode()
    binary = {"parameters": {"binary_data_output": True}}
    body = one_input(sample.datatype, [2, 3], data, **binary)
    answer = ask(f"/v2/models/flat_{sample.datatype}/infer", body)
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.body[size:] == raw


def test_string_is_another_name_of_bytes(ask):
    answer = ask("/v2/models/flat_BYTES/infer", one_input("STRING", [1, 2], ["ä", "b"]))
    [output] = answer.json()["outputs"]
    assert (output["datatype"], output["data"]) == ("BYTES", ["ä", "b"])


def test_bytes_that_are_no_text_are_not_given_as_json(ask):
    data = base64.b64encode(b"\x01\x00\x00\x00\xff").decode()
    answer = ask("/v2/models/flat_BYTES/infer", one_input("BYTES", [1, 1], data))
    assert answer.status == 400
    assert "OUTPUT0" in answer.json()["error"]


@pytest.mark.parametrize("name", ["triton_x", "priority", "timeout", "sequence_start"])
def test_reserved_parameters_of_wrong_kinds_are_refused(ask, name):
    body = one_input("FP32", [1, 1], [1], parameters={name: "x"})
    answer = ask("/v2/models/flat_FP32/infer", body)
    assert answer.status == 400
    assert name in answer.json()["error"]


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "nonsense", ""])
def test_the_type_of_the_body_does_not_matter(ask, content_type):
    headers = {"Content-Type": content_type}
    answer = ask("/v2/models/flat_FP32/infer", one_input("FP32", [1, 1], [1]), headers)
    assert answer.status == 200
