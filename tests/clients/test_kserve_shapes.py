"""What KServe's REST and gRPC clients send and need back, as their sources have it."""

import json

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

SERVICE = "/inference.GRPCInferenceService/"


def test_live_and_ready_are_json_with_their_word(ask):
    for word in ("live", "ready"):
        answer = ask(f"/v2/health/{word}")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json()[word] is True


def test_not_ready_is_json_too_and_503_where_asked_for(broken_server, ask):
    answer = ask("/v2/health/ready", port=broken_server.http_port)
    assert answer.status == 400
    assert answer.json()["ready"] is False
    assert ask("/v2/health/live", port=broken_server.http_port).json()["live"] is True


@pytest.mark.slow
def test_not_ready_is_503_where_asked_for(start, tmp_path, ask):
    (tmp_path / "broken" / "1").mkdir(parents=True)
    text = 'backend: "faulty" parameters { key: "fault" value: { string_value: "load" } }'
    (tmp_path / "broken" / "config.pbtxt").write_text(text)
    server = start("--not-ready-status=503", models=tmp_path)
    answer = ask("/v2/health/ready", port=server.http_port)
    assert (answer.status, answer.json()["ready"]) == (503, False)


def test_a_model_is_ready_with_its_name(ask):
    assert ask("/v2/models/mymodel/ready").json() == {"name": "mymodel", "ready": True}
    assert ask("/v2/models/nobody/ready").status == 404


def test_the_models_are_listed(ask):
    assert {"mymodel", "add_sub"} <= set(ask("/v2/models").json()["models"])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/nobody", None, 404),
        ("/v2/models/nobody/infer", '{"inputs": []}', 404),
        ("/v2/models/flat_FP32/infer", "{", 400),
        ("/v2/models/flat_FP32/infer", '{"inputs": []}', 400),
        ("/v2/nothing", None, 404),
        ("/v2/models/flat_FP32/infer", None, 405),
    ],
)
def test_errors_are_exactly_application_json(ask, path, body, status):
    answer = ask(path, body)
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/json"
    assert isinstance(answer.json()["error"], str)


def test_a_request_with_the_models_name_and_null_parameters(ask):
    body = {
        "id": "4be4e82f-5500-420a-a5c5-ac86841e271b",
        "model_name": "flat_FP32",
        "inputs": [
            {
                "name": "INPUT0",
                "shape": [2, 2],
                "datatype": "FP32",
                "parameters": None,
                "data": [[6.8, 2.8], [4.8, 1.4]],
            }
        ],
        "outputs": None,
        "parameters": None,
    }
    answer = ask("/v2/models/flat_FP32/infer", json.dumps(body)).json()
    assert (answer["id"], answer["model_name"]) == (body["id"], "flat_FP32")
    assert answer["outputs"][0]["data"] == [6.8, 2.8, 4.8, 1.4]


def test_a_binary_request_with_headers_in_lower_case(ask):
    array = np.array([[1, 2, 3]], np.float16)
    body = {
        "model_name": "flat_FP16",
        "inputs": [
            {
                "name": "INPUT0",
                "shape": [1, 3],
                "datatype": "FP16",
                "parameters": {"binary_data_size": array.nbytes},
            }
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(body).encode()
    headers = {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(head)),
    }
    answer = ask("/v2/models/flat_FP16/infer", head + array.tobytes(), headers)
    size = int(answer.headers["inference-header-content-length"])
    output = json.loads(answer.body[:size])["outputs"][0]
    assert output["parameters"]["binary_data_size"] == array.nbytes
    assert answer.body[size:] == array.tobytes()


def test_typed_contents_and_rpcs_of_grpc(server):
    def call(channel, rpc, request, answer):
        method = channel.unary_unary(
            SERVICE + rpc, type(request).SerializeToString, answer.FromString
        )
        return method(request)

    pb = service_pb2
    with grpc.insecure_channel(server.grpc) as channel:
        assert call(channel, "ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse).live
        assert call(channel, "ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse).ready
        ready = pb.ModelReadyRequest(name="mymodel")
        assert call(channel, "ModelReady", ready, pb.ModelReadyResponse).ready
        request = pb.ModelInferRequest(model_name="flat_FP32", id="7")
        request.parameters["flag"].bool_param = True
        tensor = request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 2])
        tensor.contents.fp32_contents.extend([1.5, 2.5])
        answer = call(channel, "ModelInfer", request, pb.ModelInferResponse)
    assert (answer.model_name, answer.id) == ("flat_FP32", "7")
    assert np.frombuffer(answer.raw_output_contents[0], "<f4").tolist() == [1.5, 2.5]
