"""generate and generate_stream as plain HTTP clients use them."""

import http.client
import json
import subprocess

import pytest

STREAM = "/v2/models/repeat/generate_stream"


def curl(server, path, body, *options):
    command = ["curl", "-sS", "--max-time", "30", *options, "-d", json.dumps(body)]
    done = subprocess.run(
        [*command, f"http://{server.http}{path}"], capture_output=True, check=True
    )
    return done.stdout.decode()


def events(text):
    *found, rest = text.split("\n\n")
    assert rest == ""
    return [json.loads(event.removeprefix("data: ")) for event in found]


def test_curl_gets_an_object(server):
    text = curl(server, "/v2/models/animals/generate", {"INPUT0": [1, 2, 3], "id": "a"})
    assert json.loads(text) == {
        "OUTPUT0": [1.0, 2.0, 3.0],
        "id": "a",
        "model_name": "animals",
        "model_version": "1",
    }


@pytest.mark.parametrize("options", [(), ("--http1.0",), ("-H", "Connection: close")])
def test_curl_gets_events(server, options):
    text = curl(server, STREAM, {"IN": [7, 8, 9]}, "-N", *options)
    assert [(event["IDX"], event["OUT"]) for event in events(text)] == [(0, 7), (1, 8), (2, 9)]


def test_curl_is_told_what_is_wrong(server):
    text = curl(server, STREAM, {"IN": ["a"]}, "-N")
    assert json.loads(text) == {
        "error": "Unable to parse 'data': attempt to access JSON non-signed-integer as "
        "signed-integer: input 'IN': element 0 is \"a\", which is not a whole number from "
        "-2147483648 to 2147483647 for datatype INT32"
    }


@pytest.fixture
def opened(server):
    """opened(body) sends it and returns the answer, whose head has come, and its connection."""
    connections = []

    def send(body):
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connections.append(connection)
        connection.request("POST", STREAM, json.dumps(body))
        return connection.getresponse(), connection

    yield send
    for connection in connections:
        connection.close()


def next_event(answer):
    line = answer.readline()
    assert answer.readline() == b"\n"
    return json.loads(line.removeprefix(b"data: "))


def test_a_client_that_leaves_frees_the_model(opened):
    long = {"IN": [0] * 2000, "DELAY": [50] * 2000}  # 100 s of the model's one instance
    answer, connection = opened(long)
    assert next_event(answer)["IDX"] == 0
    answer.close()
    connection.close()
    answer, _ = opened({"IN": [5]})
    assert next_event(answer)["OUT"] == 5


def test_a_connection_carries_one_stream_after_the_other(opened):
    answer, connection = opened({"IN": [1]})
    assert len(events(answer.read().decode())) == 1
    for count in (0, 3):
        connection.request("POST", STREAM, json.dumps({"IN": list(range(count))}))
        assert len(events(connection.getresponse().read().decode())) == count
