"""V2 and the old API on one HTTP connection and one gRPC channel, with one set of statistics."""

import http.client
import json

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb

VALUES = np.arange(4, dtype=np.float32)
HEADER = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
V2_BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [4], "data": VALUES.tolist()}]}
)


def counted_by_v2(connection):
    connection.request("GET", "/v2/models/flat/stats")
    [row] = json.loads(connection.getresponse().read())["model_stats"]
    return row


def counted_before(connection, messages):
    connection.request("GET", "/api/status/flat?format=binary")
    told = messages.read("ServerStatus", connection.getresponse().read())
    return told.model_status["flat"].version_status[1]


def compare(row, version):
    """Both must tell the same of what has happened."""
    whole = row["inference_stats"]
    stats = version.infer_stats.values()
    assert version.model_inference_count == row["inference_count"]
    assert version.model_execution_count == row["execution_count"]
    assert version.last_inference_timestamp_milliseconds == row["last_inference"]
    for old, new in (("success", "success"), ("failed", "fail"), ("queue", "queue"),
                     ("compute_infer", "compute_infer")):  # fmt: skip
        durations = [getattr(one, old) for one in stats]
        assert sum(one.count for one in durations) == whole[new]["count"]
        assert sum(one.total_time_ns for one in durations) == whole[new]["ns"]


def test_on_one_http_connection(server, messages):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    before = counted_by_v2(connection)["inference_count"]
    for index in range(20):
        if index % 2:
            connection.request("POST", "/v2/models/flat/infer", V2_BODY)
            answer = json.loads(connection.getresponse().read())
            assert answer["outputs"][0]["data"] == VALUES.tolist()
        else:
            header = {"NV-InferRequest": f"{HEADER} id: {index}"}
            connection.request("POST", "/api/infer/flat", VALUES.tobytes(), header)
            answer = connection.getresponse()
            assert answer.read().startswith(VALUES.tobytes())
            assert f"id: {index}" in f"{answer.headers['NV-InferResponse']} id: 0"
    row = counted_by_v2(connection)
    assert row["inference_count"] - before == 20
    compare(row, counted_before(connection, messages))
    connection.close()


def test_on_one_grpc_channel(server, messages):
    request = messages(
        "InferRequest",
        model_name="flat",
        model_version=-1,
        meta_data=messages.read("InferRequestHeader", HEADER),
        raw_input=[VALUES.tobytes()],
    ).SerializeToString()
    tensor = triton.InferInput("INPUT0", [4], "FP32")
    tensor.set_data_from_numpy(VALUES)
    new = pb.ModelInferRequest(model_name="flat", raw_input_contents=[VALUES.tobytes()])
    new.inputs.append(tensor._get_tensor())
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        old_infer = channel.unary_unary("/nvidia.inferenceserver.GRPCService/Infer")
        new_infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        old_stream = channel.stream_stream("/nvidia.inferenceserver.GRPCService/StreamInfer")
        for _ in range(10):
            answer = messages.read("InferResponse", old_infer(request, timeout=30))
            assert list(answer.raw_output) == [VALUES.tobytes()]
            told = pb.ModelInferResponse.FromString(new_infer(new.SerializeToString(), timeout=30))
            assert list(told.raw_output_contents) == [VALUES.tobytes()]
        assert len(list(old_stream(iter([request] * 5), timeout=30))) == 5
        status = channel.unary_unary("/nvidia.inferenceserver.GRPCService/Status")
        version = messages.read("StatusResponse", status(b"", timeout=30))
        statistics = channel.unary_unary("/inference.GRPCInferenceService/ModelStatistics")
        asked = pb.ModelStatisticsRequest(name="flat").SerializeToString()
        row = pb.ModelStatisticsResponse.FromString(statistics(asked, timeout=30)).model_stats[0]
    version = version.server_status.model_status["flat"].version_status[1]
    assert version.model_inference_count == row.inference_count
    assert version.infer_stats[1].success.count == row.inference_stats.success.count
    assert version.infer_stats[1].success.total_time_ns == row.inference_stats.success.ns


def test_a_region_of_one_is_a_region_of_the_other(http_client, shared):
    given = shared()
    given.write(VALUES)
    memory = "/api/sharedmemorycontrol"
    assert http_client.post(f"{memory}/register/both/{given.key}/0/64").code == 200
    place = {"shared_memory_region": "both", "shared_memory_byte_size": 16}
    body = {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [4], "parameters": place}],
    }
    answer = http_client.post("/v2/models/flat/infer", json.dumps(body).encode())
    assert json.loads(answer.body)["outputs"][0]["data"] == VALUES.tolist()
    told = http_client.get("/v2/systemsharedmemory/status")
    assert json.loads(told.body)[0]["name"] == "both"
    assert http_client.post("/v2/systemsharedmemory/region/both/unregister").code == 200
    assert http_client.get(f"{memory}/status").body == b""


def test_a_sequence_begun_in_one_goes_on_in_the_other(http_client):
    def old(flags):
        header = f"{HEADER} correlation_id: 99 flags: {flags}"
        return http_client.infer("sequence", header, b"\1\0\0\0").code

    def new(**parameters):
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [1]}
        body = {"parameters": {"sequence_id": 99, **parameters}, "inputs": [tensor]}
        return http_client.post("/v2/models/sequence/infer", json.dumps(body).encode()).code

    assert [old(1), new(), old(0), new(sequence_end=True), old(0)] == [200, 200, 200, 200, 400]
