"""Sixty-four connections at once, HTTP and gRPC, right and wrong requests; each answer checked."""

import gzip
import http.client
import json
import random
import struct
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

REQUESTS_PER_CONNECTION = 46
CONNECTIONS = 32  # of each protocol
FLAT = "/v2/models/flat_FP32/infer"
SERVICE = "/inference.GRPCInferenceService/"


def document(values, shape=None, **more):
    """Return an inference request with FP32 values as JSON."""
    shape = shape or [1, len(values)]
    tensor = {"name": "INPUT0", "shape": shape, "datatype": "FP32", "data": values}
    return json.dumps({"inputs": [tensor], **more}).encode()


class HttpUser:
    """One keep-alive connection that sends requests of all kinds."""

    def __init__(self, port, seed):
        self.random = random.Random(seed)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.kinds = [
            self.valid,
            self.valid,
            self.binary,
            self.zipped,
            self.batch,
            self.tells,
            self.refused,
            self.refused,
            self.leaves,
        ]

    def run(self):
        """Send the requests."""
        try:
            for _ in range(REQUESTS_PER_CONNECTION):
                self.random.choice(self.kinds)()
        finally:
            self.connection.close()

    def values(self):
        """Return some numbers FP32 can hold."""
        return [
            float(self.random.randint(-(2**20), 2**20)) for _ in range(self.random.randint(1, 99))
        ]

    def send(self, method, path, body=None, headers=None):
        """Return status, headers and body."""
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def valid(self):
        values, name = self.values(), str(self.random.random())
        status, _, body = self.send("POST", FLAT, document(values, id=name))
        answer = json.loads(body)
        assert (status, answer["id"], answer["outputs"][0]["data"]) == (200, name, values)

    def binary(self):
        raw = np.array(self.values(), np.float32).tobytes()
        tensor = {"name": "INPUT0", "shape": [1, len(raw) // 4], "datatype": "FP32",
                  "parameters": {"binary_data_size": len(raw)}}  # fmt: skip
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        size = {"Inference-Header-Content-Length": str(len(head))}
        status, headers, body = self.send("POST", FLAT, head + raw, size)
        assert status == 200
        assert body[int(headers["Inference-Header-Content-Length"]) :] == raw

    def zipped(self):
        values = self.values() * 40
        headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
        body = gzip.compress(document(values), compresslevel=1)
        status, headers, body = self.send("POST", FLAT, body, headers)
        if headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        assert (status, json.loads(body)["outputs"][0]["data"]) == (200, values)

    def batch(self):
        rows = self.random.randint(1, 8)
        data = [self.random.randint(-1000, 1000) for _ in range(rows * 16)]
        inputs = [
            {"name": name, "shape": [rows, 16], "datatype": "INT32", "data": data}
            for name in ("INPUT0", "INPUT1")
        ]
        body = json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT0"}]})
        status, _, body = self.send("POST", "/v2/models/add_sub/infer", body)
        assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [2 * x for x in data])

    def tells(self):
        path = self.random.choice(TELLING)
        status, _, body = self.send("GET", path)
        assert status == 200 and json.loads(body)
        assert self.send("HEAD", path)[::2] == (200, b"")

    def refused(self):
        faulty = document([1.0], [1], parameters={"fault": self.random.choice(FAULTS)})
        method, path, body, headers, expected = self.random.choice(
            [
                ("POST", "/v2/models/nobody/infer", document([1.0]), {}, 404),
                ("POST", FLAT, document([1.0])[:-3], {}, 400),
                ("POST", FLAT, document([1.0], [1, 2]), {}, 400),
                ("POST", FLAT, document([1.0], [1]), {}, 400),
                ("POST", FLAT, document(["x"]), {}, 400),
                ("POST", FLAT, b"", {}, 400),
                ("POST", FLAT, document([1.0]), {"Content-Encoding": "br"}, 501),
                ("POST", FLAT, document([1.0]), {"Content-Encoding": "gzip"}, 400),
                ("POST", FLAT, b"ab", {"Inference-Header-Content-Length": "3"}, 400),
                ("POST", FLAT, document([1.0]), {"Inference-Header-Content-Length": "x"}, 400),
                ("DELETE", FLAT, None, {}, 405),
                ("GET", "/v2/models/nobody", None, {}, 404),
                ("GET", "/nothing", None, {}, 404),
                ("POST", "/v2/models/faulty/infer", faulty, {}, 500),
            ]
        )
        status, headers, body = self.send(method, path, body, headers)
        assert (status, headers["Content-Type"]) == (expected, "application/json")
        assert list(json.loads(body)) == ["error"]

    def leaves(self):
        """Go away in the middle of a body; the next request comes on a new connection."""
        self.connection.putrequest("POST", FLAT)
        self.connection.putheader("Content-Length", "1000")
        self.connection.endheaders(b'{"inputs": [')
        self.connection.close()


TELLING = ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/three"]
FAULTS = ["raise", "too_few", "wrong_shape", "return_error", "missing_output"]


class GrpcUser:
    """One channel, not shared with others, that makes calls of all kinds."""

    def __init__(self, target, seed):
        self.random = random.Random(seed)
        self.channel = grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
        self.infer = self.channel.unary_unary(SERVICE + "ModelInfer")
        self.metadata = self.channel.unary_unary(SERVICE + "ModelMetadata")
        self.kinds = [self.valid, self.typed, self.tells, self.refused, self.cancelled]

    def run(self):
        """Make the calls."""
        with self.channel:
            for _ in range(REQUESTS_PER_CONNECTION):
                self.random.choice(self.kinds)()

    def request(self, model="flat_FP32", name="INPUT0", size=3, raw=None):
        """Return an inference request of `size` FP32."""
        request = service_pb2.ModelInferRequest(model_name=model, id=str(self.random.random()))
        request.inputs.add(name=name, datatype="FP32", shape=[1, size])
        if raw is not None:
            request.raw_input_contents.append(raw)
        return request

    def valid(self):
        size = self.random.randint(1, 99)
        raw = struct.pack(f"<{size}f", *(self.random.randint(0, 999) for _ in range(size)))
        request = self.request(size=size, raw=raw)
        answer = service_pb2.ModelInferResponse.FromString(
            self.infer(request.SerializeToString(), timeout=60)
        )
        assert (answer.id, list(answer.raw_output_contents)) == (request.id, [raw])

    def typed(self):
        request = self.request()
        request.inputs[0].contents.fp32_contents.extend([1, 2, 3])
        answer = service_pb2.ModelInferResponse.FromString(
            self.infer(request.SerializeToString(), timeout=60)
        )
        assert list(answer.raw_output_contents) == [struct.pack("<3f", 1, 2, 3)]

    def tells(self):
        message = service_pb2.ModelMetadataRequest(name="mymodel").SerializeToString()
        answer = service_pb2.ModelMetadataResponse.FromString(self.metadata(message, timeout=60))
        assert list(answer.versions) == ["1", "2"]

    def refused(self):
        faulty = self.request("faulty", raw=bytes(4))
        faulty.inputs[0].shape[:] = [1]
        faulty.parameters["fault"].string_param = self.random.choice(FAULTS)
        code = grpc.StatusCode
        request, expected = self.random.choice(
            [
                (self.request("nobody", raw=bytes(12)), code.NOT_FOUND),
                (self.request(raw=bytes(11)), code.INVALID_ARGUMENT),
                (self.request(name="X", raw=bytes(12)), code.INVALID_ARGUMENT),
                (self.request(), code.INVALID_ARGUMENT),
                (None, code.INVALID_ARGUMENT),
                (faulty, code.INTERNAL),
            ]
        )
        message = request.SerializeToString() if request else b"\xff\xff\xff"
        with pytest.raises(grpc.RpcError) as caught:
            self.infer(message, timeout=60)
        assert caught.value.code() is expected
        assert caught.value.details()

    def cancelled(self):
        call = self.infer.future(self.request(raw=bytes(12)).SerializeToString())
        call.cancel()
        assert call.done()


@pytest.mark.slow
def test_every_answer_is_right_whatever_others_send(server):
    users = [HttpUser(server.http_port, seed) for seed in range(CONNECTIONS)]
    users += [GrpcUser(server.grpc, seed) for seed in range(CONNECTIONS)]
    with ThreadPoolExecutor(len(users)) as threads:
        for outcome in [threads.submit(user.run) for user in users]:
            outcome.result()
    with grpc.insecure_channel(server.grpc) as channel:
        ready = channel.unary_unary(SERVICE + "ServerReady")(b"", timeout=60)
        assert service_pb2.ServerReadyResponse.FromString(ready).ready
