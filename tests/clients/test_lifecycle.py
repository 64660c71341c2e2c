"""The end of a server process while clients wait for slow answers."""

import http.client
import json
import queue

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.slow

BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [2.5]}]})


@pytest.fixture
def grpc_call():
    """grpc_call(client) sends the slow request and returns the queue its (result, error) enters."""

    def send(client):
        answers = queue.Queue()
        tensor = tritonclient.grpc.InferInput("INPUT0", [1], "FP32")
        tensor.set_data_from_numpy(np.array([2.5], np.float32))
        client.async_infer("slow", [tensor], lambda result, error: answers.put((result, error)))
        assert client.is_server_ready()  # same connection, so the request has arrived
        return answers

    return send


def answer_of(connection):
    """Read the answer and close; return the status and the values."""
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body["outputs"][0]["data"]


def sent(connection):
    """Send the slow request on a connection, and make sure that the server has read it."""
    connection.request("POST", "/v2/models/slow/infer", BODY)
    for _ in range(2):  # later bytes that are answered: the earlier ones were read
        other = http.client.HTTPConnection(connection.host, connection.port, timeout=30)
        other.request("GET", "/v2/health/ready")
        assert other.getresponse().status == 200
        other.close()


def test_a_slow_http_request_is_answered_after_sigterm(start):
    server = start()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    sent(connection)
    server.terminate()
    assert answer_of(connection) == (200, [2.5])
    assert server.end() == 0
    assert "cut" not in server.said


def test_a_slow_grpc_call_is_answered_after_sigterm(start, grpc_call):
    server = start()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        answers = grpc_call(client)
        server.terminate()
        result, error = answers.get(timeout=30)
        assert error is None
        assert result.as_numpy("OUTPUT0").tolist() == [2.5]
    assert server.end() == 0
    assert "cut" not in server.said


def test_slow_requests_of_both_protocols_are_answered_after_sigterm(start, grpc_call):
    server = start()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        answers = grpc_call(client)
        sent(connection)
        server.terminate()
        result, error = answers.get(timeout=30)
        assert error is None
        assert result.as_numpy("OUTPUT0").tolist() == [2.5]
        assert answer_of(connection) == (200, [2.5])
    assert server.end() == 0
    assert "cut" not in server.said


def test_idle_keep_alive_connections_do_not_hold_up_the_end(start):
    server = start()
    idle = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    idle.request("GET", "/v2/health/ready")
    assert idle.getresponse().read()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        assert client.is_server_ready()
        server.terminate()
        assert server.end() == 0
        assert "cut" not in server.said
        assert idle.sock.recv(1) == b""
        idle.close()
        with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
            client.is_server_ready()


def test_a_client_reaches_the_next_server_on_the_same_port(start):
    first = start()
    ports = (f"--http-port={first.http_port}", f"--grpc-port={first.grpc.rpartition(':')[2]}")
    with (
        tritonclient.http.InferenceServerClient(first.http) as over_http,
        tritonclient.grpc.InferenceServerClient(first.grpc) as over_grpc,
    ):
        assert over_http.is_server_ready() and over_grpc.is_server_ready()
        first.terminate()
        assert first.end() == 0
        start(*ports)
        assert over_http.is_server_ready()
        assert over_grpc.is_server_ready()
