"""The payload log of whole servers: CloudEvents of what clients send and get, as KServe's."""

import base64
import contextlib
import http.client
import json
import re
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from server_thread import server_in_thread

from inferd.client.trtis import TrtisGrpc, TrtisHttp
from inferd.config.server import ServerConfig
from inferd.wire.v2.rest.client import decode_infer_response

REQUEST = "org.kubeflow.serving.inference.request"
RESPONSE = "org.kubeflow.serving.inference.response"
VALUES = np.array([7.5], np.float32)


class Receiver:
    """Takes events over HTTP, as KServe's receivers do; `status` is what it answers."""

    def __init__(self):
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.may_answer.wait()
                receiver.events.append((self.path, dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments):
                pass

        self.status = 200
        self.events = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/events?a=b"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver():
    """A receiver of events that is there."""
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def log(tmp_path):
    """The file of events."""
    return tmp_path / "payloads.jsonl"


@pytest.fixture
def serve(repository, echo, log):
    """serve(setting, ..., option=value) is a server that logs payloads; its models `m` and `r`."""
    models = str(repository(m=echo(), r='backend: "repeat"'))

    def build(*settings, **more):
        given = {
            "http_port": 0,
            "grpc_port": 0,
            "model_repository": (models,),
            "payload_log": str(log),
            "payload_log_config": settings,
            "allow_metrics": False,
        }
        return server_in_thread(ServerConfig(**(given | more)))

    return build


def tensor(library, name="INPUT0", values=VALUES):
    given = library.InferInput(
        name, list(values.shape), "FP32" if values.dtype == "f4" else "INT32"
    )
    given.set_data_from_numpy(values)
    return given


def events_in(log):
    """Return the events of a server that has ended."""
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def posted(port, body, headers=None, path="/v2/models/m/infer"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def of_inputs(event):
    """Return the JSON of a request in binary form, and its inputs' bytes by name."""
    data = base64.b64decode(event["data_base64"])
    size = int(event["inferenceheadercontentlength"])
    document, at, blobs = json.loads(data[:size]), size, {}
    for one in document["inputs"]:
        end = at + one["parameters"]["binary_data_size"]
        blobs[one["name"]], at = data[at:end], end
    assert at == len(data)
    return document, blobs


def of_outputs(event):
    """Return a response in binary form, as a client of V2 reads it."""
    data = base64.b64decode(event["data_base64"])
    return decode_infer_response(memoryview(data), int(event["inferenceheadercontentlength"]))


def test_json_is_logged_as_it_was_sent(serve, log, body):
    pretty = json.dumps(json.loads(body) | {"id": "a\nb"}, indent=2).encode()
    with serve() as server:
        _, answer = posted(server.http_port, pretty)
    request, response = events_in(log)
    assert request.pop("data") == json.loads(pretty)
    assert response.pop("data") == json.loads(answer)
    assert request.pop("type") == REQUEST and response.pop("type") == RESPONSE
    for event in (request, response):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert re.fullmatch(r"[0-9a-f-]{36}", request["id"])
    assert response.pop("modelversion") == "1"
    assert request == response
    assert request == {
        "specversion": "1.0",
        "id": request["id"],
        "source": "inferd",
        "datacontenttype": "application/json",
        "component": "predictor",
        "endpoint": "default",
        "metadata": "{}",
        "protocol": "http",
        "modelname": "m",
    }


def test_a_receiver_gets_events_as_kserve_sends_them(serve, receiver, body):
    more = ("service=digits ü", "namespace=models", "source=http://here/")
    with serve(*more, payload_log=receiver.url) as server:
        answer = posted(server.http_port, body, {"Ce-Id": "mine"})[1]
    (path, headers, first), (_, other, second) = receiver.events
    assert path == "/events?a=b" and (first, second) == (body, answer)
    found = {name.lower(): value for name, value in headers.items()}
    assert (found["ce-type"], found["ce-id"]) == (REQUEST, "mine")
    assert found["content-type"] == "application/json" and found["ce-specversion"] == "1.0"
    assert found["ce-namespace"] == "models" and found["ce-component"] == "predictor"
    assert unquote(found["ce-inferenceservicename"]) == "digits ü"
    assert found["ce-source"] == "http://here/"
    assert {name.lower(): value for name, value in other.items()}["ce-type"] == RESPONSE


def test_binary_data_are_logged_as_they_were_sent(serve, log):
    with serve() as server:
        client = over_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        client.infer("m", [tensor(over_http)], request_id="b")
        client.close()
    request, response = events_in(log)
    assert request["datacontenttype"] == "application/octet-stream"
    document, blobs = of_inputs(request)
    assert document["id"] == "b" and blobs == {"INPUT0": VALUES.tobytes()}
    answer = of_outputs(response)
    assert (answer.model, answer.id) == ("m", "b")
    assert answer.outputs[0].numpy().tolist() == [7.5]


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_a_call_of_grpc_is_logged_as_the_same_request_over_rest(serve, log, transport):
    wanted = over_grpc.InferRequestedOutput("OUTPUT0")
    with serve(grpc_transport=transport) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer(
            "m",
            [tensor(over_grpc)],
            outputs=[wanted],
            request_id="g",
            parameters={"a": 1},
            priority=2,
            headers={"ce-id": "mine"},
        )
        client.close()
    request, response = events_in(log)
    assert request["id"] == response["id"] == "mine" and request["protocol"] == "grpc"
    document, blobs = of_inputs(request)
    assert document == {
        "id": "g",
        "inputs": [
            {
                "name": "INPUT0",
                "shape": [1],
                "datatype": "FP32",
                "parameters": {"binary_data_size": 4},
            }
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
        "parameters": {"a": 1, "priority": 2},
    }
    assert blobs == {"INPUT0": VALUES.tobytes()}
    assert of_outputs(response).outputs[0].numpy().tolist() == [7.5]


def test_what_is_logged_can_be_sent_again(serve, log):
    with serve() as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)])
        client.close()
    request, response = events_in(log)
    size = request["inferenceheadercontentlength"]
    with serve() as server:
        status, answer = posted(
            server.http_port,
            base64.b64decode(request["data_base64"]),
            {"Inference-Header-Content-Length": size},
        )
    assert status == 200
    assert answer.endswith(of_outputs(response).outputs[0].data)


def test_shared_memory_is_logged_as_it_was_at_that_moment(serve, log, shared):
    place = shared(64)
    place.write(VALUES)
    with serve(allow_client_shm=True) as server:
        client = over_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        client.register_system_shared_memory("region", place.key, 64)
        given = over_http.InferInput("INPUT0", [1], "FP32")
        given.set_shared_memory("region", 4)
        wanted = over_http.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("region", 4, offset=32)
        client.infer("m", [given], outputs=[wanted])
        place.write(np.zeros(16, np.float32))
        client.close()
    request, response = events_in(log)
    assert of_inputs(request)[1] == {"INPUT0": VALUES.tobytes()}
    assert "region" not in str(of_inputs(request)[0])
    assert of_outputs(response).outputs[0].numpy().tolist() == [7.5]


def test_streams_and_generate_and_the_old_api_are_logged_in_the_same_form(serve, log):
    answers = []
    with serve(allow_trtis=True) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.start_stream(lambda result, error: answers.append(error or result))
        client.async_stream_infer("r", [tensor(over_grpc, "IN", np.array([1, 2], np.int32))])
        client.async_stream_infer("m", [tensor(over_grpc)])
        client.stop_stream()
        client.close()
        posted(server.http_port, b'{"INPUT0": 7.5}', path="/v2/models/m/generate")
        with TrtisHttp(f"127.0.0.1:{server.http_port}") as client:
            client.infer("m", {"INPUT0": VALUES}, {"OUTPUT0": 0})
        with TrtisGrpc(f"127.0.0.1:{server.grpc_port}") as client:
            client.infer("m", {"INPUT0": VALUES}, {"OUTPUT0": 0})
    events = events_in(log)
    kinds = [(event["modelname"], event["type"].rpartition(".")[2]) for event in events]
    assert sorted(kinds[:5]) == sorted(
        [("r", "request"), *[("r", "response")] * 2, ("m", "request"), ("m", "response")]
    )
    assert kinds[5:] == [("m", "request"), ("m", "response")] * 3
    for event in events:
        if event["type"] == REQUEST:
            expected = VALUES if event["modelname"] == "m" else np.array([1, 2], np.int32)
            assert expected.tobytes() in of_inputs(event)[1].values()
        else:
            assert of_outputs(event).outputs


def test_a_request_that_fails_is_logged_without_an_answer(serve, log, body):
    wrong = body.replace(b"INPUT0", b"OTHER0")
    with serve() as server:
        assert posted(server.http_port, wrong)[0] == 400
        assert posted(server.http_port, b"{")[0] == 400  # nobody knows what it is about
    [request] = events_in(log)
    assert request["type"] == REQUEST and request["data"] == json.loads(wrong)


def test_each_model_has_its_own_policy(serve, log, body):
    with serve("m,mode=response", "r,sample=0") as server:
        posted(server.http_port, body)
        posted(server.http_port, b'{"IN": [1]}', path="/v2/models/r/generate")
    assert [event["type"] for event in events_in(log)] == [RESPONSE]


def test_what_is_not_chosen_is_not_copied(serve, log, body):
    with serve("sample=0", "m,mode=request") as server:
        posted(server.http_port, body)
        assert not server.engine.payloads.takes("m")
    assert log.read_bytes() == b""


def test_a_part_of_the_requests_is_chosen(serve, log, body):
    with serve("sample=0.5", "mode=request") as server:
        for _ in range(200):
            posted(server.http_port, body)
    assert 50 < len(events_in(log)) < 150  # once in 10^12 runs it is not


def test_a_long_payload_is_cut_and_says_so(serve, log, body):
    with serve("max-bytes=1000") as server:
        long = body[:-1] + b" " * 2000 + b"}"
        assert posted(server.http_port, long)[0] == 200
    request, response = events_in(log)
    assert (request["truncated"], request["fullsize"]) == ("true", str(len(long)))
    assert base64.b64decode(request["data_base64"]) == long[:1000]
    assert "truncated" not in response


def test_json_that_not_every_reader_takes_is_logged_as_bytes(serve, log, body):
    odd = body.replace(b"7.0", b"NaN")
    with serve(json_non_finite="literal") as server:
        posted(server.http_port, odd)
    request, response = events_in(log)
    assert base64.b64decode(request["data_base64"]) == odd
    assert "inferenceheadercontentlength" not in request
    assert b"NaN" in base64.b64decode(response["data_base64"])


def test_a_receiver_that_hangs_holds_nobody_up(serve, receiver, body):
    receiver.may_answer.clear()
    with serve("buffer-bytes=4000", payload_log=receiver.url, allow_metrics=True) as server:
        for _ in range(20):
            assert posted(server.http_port, body)[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        receiver.may_answer.set()
    counts = dict(re.findall(r'inferd_payload_log_events_total{result="(\w+)"} (\d+)', text))
    assert int(counts["dropped"]) > 30 and counts["written"] == counts["failed"] == "0"
    waiting = float(re.search(r"^inferd_payload_log_waiting_bytes (\S+)", text, re.MULTILINE)[1])
    assert 1000 < waiting < 8000


def test_a_receiver_that_refuses_events_is_told_once_and_again_after_ten(
    serve, receiver, body, caplog
):
    receiver.status = 503
    with serve("mode=request", payload_log=receiver.url) as server:
        for _ in range(10):
            posted(server.http_port, body)
    assert len(receiver.events) == 10
    told = [text for text in caplog.messages if "payloads were lost" in text]
    assert told == [
        "1 payloads were lost: the receiver answers 503 Service Unavailable",
        "10 payloads were lost: the receiver answers 503 Service Unavailable",
    ]


def test_a_receiver_that_is_not_there_costs_the_events_alone(serve, body, caplog):
    with contextlib.closing(Receiver()) as gone:
        url = gone.url
    with serve("mode=request", payload_log=url) as server:
        assert posted(server.http_port, body)[0] == 200
    assert "1 payloads were lost: Connection refused" in caplog.text


def test_a_large_request_is_logged_whole(serve, log):
    values = np.arange(200_000, dtype=np.float32)
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "FP32",
                    "shape": [200_000],
                    "parameters": {"binary_data_size": values.nbytes},
                }
            ]
        }
    ).encode()
    with serve() as server:
        started = time.monotonic()
        posted(
            server.http_port,
            header + values.tobytes(),
            {"Inference-Header-Content-Length": str(len(header))},
        )
        assert time.monotonic() - started < 30
    [request] = events_in(log)  # the model takes one value: there is no answer
    assert of_inputs(request)[1]["INPUT0"] == values.tobytes()


def test_strings_are_logged_with_their_lengths(serve, log, shared, repository, tmp_path):
    root = tmp_path / "strings"
    (root / "s" / "1").mkdir(parents=True)
    (root / "s" / "config.pbtxt").write_text(
        'backend: "identity"\n'
        'input { name: "INPUT0" data_type: TYPE_STRING dims: 2 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_STRING dims: 2 }\n'
    )
    data = b"".join(struct.pack("<I", len(one)) + one for one in (b"ab", b""))
    place = shared(64)
    with serve(allow_client_shm=True, model_repository=(str(root),)) as server:
        client = over_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        client.register_system_shared_memory("region", place.key, 64)
        given = over_http.InferInput("INPUT0", [2], "BYTES")
        given.set_data_from_numpy(np.array([b"ab", b""], np.object_))
        wanted = over_http.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("region", 40, offset=8)
        client.infer("s", [given], outputs=[wanted])
        client.close()
    request, response = events_in(log)
    assert of_inputs(request)[1] == {"INPUT0": data}
    assert bytes(of_outputs(response).outputs[0].data) == data


def test_a_log_may_be_a_parquet_file(serve, tmp_path, body):
    path = tmp_path / "log.parquet"
    with serve(payload_log=str(path)) as server:
        posted(server.http_port, body)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["type"] for row in rows] == [REQUEST, RESPONSE]
    assert rows[0]["data"] == body
