"""The access log of whole servers: one line per request, whatever it came by, and no secret."""

import asyncio
import http.client
import json
import re
import signal
import socket

import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from patience import wait_until
from server_process import ON_FREE_PORTS, Process
from server_thread import server_in_thread

from inferd.client.trtis import TrtisGrpc, TrtisHttp
from inferd.config.options.access import make_key
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.server import Server

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
LINE = re.compile(
    rf"(?P<time>{TIME}) (?P<peer>127\.0\.0\.1:\d+|unix) (?P<protocol>HTTP/1\.1|HTTP/2|gRPC) "
    r'(?P<call>"[^"\\]*(?:\\.[^"\\]*)*") (?P<status>\w+) '
    r'model=(?P<model>-|".*?") version=(?P<version>-|\d+|".*?") id=(?P<id>-|"(?:[^"\\]|\\.)*") '
    r"in=(?P<taken>\d+) out=(?P<sent>\d+) queue_us=(?P<queue>\d+) compute_us=(?P<compute>\d+) "
    r"total_us=(?P<total>\d+) key=(?P<key>.*)"
)
REPEATED = 'backend: "repeat"'  # decoupled: one answer for each element


@pytest.fixture
def log(tmp_path):
    """Where the lines are."""
    return tmp_path / "access.log"


@pytest.fixture
def serve(repository, echo, log):
    """serve(option=value) is a server with an access log, its models `m` and `r`."""
    models = str(repository(m=echo(), r=REPEATED))

    def build(**more):
        given = {
            "http_port": 0,
            "grpc_port": 0,
            "allow_metrics": False,
            "model_repository": (models,),
            "access_log": str(log),
        }
        return server_in_thread(ServerConfig(**(given | more)))

    return build


def lines_of(log):
    """Return the lines of a server that has ended, as dicts; the texts of clients decoded."""
    found = []
    for line in log.read_text().splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        fields = match.groupdict()
        for name in ("call", "model", "id", "key"):
            if fields[name] != "-":
                fields[name] = json.loads(fields[name])
        found.append(fields)
    return found


def asked(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def tensor(library, name="INPUT0", values=(7.0,), datatype="FP32", dtype=np.float32):
    given = library.InferInput(name, [len(values)], datatype)
    given.set_data_from_numpy(np.array(values, dtype))
    return given


def test_a_request_over_rest_leaves_a_line(serve, log, body):
    with serve() as server:
        status, answer = asked(server.http_port, "POST", "/v2/models/m/infer", body)
        assert status == 200
        asked(server.http_port, "GET", "/v2/health/live")
    one, other = lines_of(log)
    assert (one["protocol"], one["call"]) == ("HTTP/1.1", "POST /v2/models/m/infer")
    assert (one["status"], one["model"], one["version"], one["id"]) == ("200", "m", "1", "-")
    assert (int(one["taken"]), int(one["sent"])) == (len(body), len(answer))
    assert int(one["total"]) >= int(one["queue"]) + int(one["compute"])
    assert one["key"] == "-"
    assert (other["call"], other["model"], other["taken"]) == ("GET /v2/health/live", "-", "0")


def test_the_lines_of_a_connection_that_repeats_itself_differ_where_the_requests_do(
    serve, log, body
):
    document = json.loads(body)
    with serve() as server:
        client = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        for number in (10, 11, 12):
            text = json.dumps(document | {"id": f"n{number}"})
            client.request("POST", "/v2/models/m/infer", text)
            assert client.getresponse().read()
        client.request("POST", "/v2/models/nothing/infer", body)
        client.getresponse().read()
        client.request("GET", "/v2/models/m")
        client.getresponse().read()
        client.close()
    lines = lines_of(log)
    assert [line["id"] for line in lines] == ["n10", "n11", "n12", "-", "-"]
    assert [line["status"] for line in lines] == ["200", "200", "200", "404", "200"]
    assert [line["model"] for line in lines] == ["m", "m", "m", "nothing", "-"]
    assert len({line["peer"] for line in lines}) == 1


def test_a_line_names_the_model_of_what_cannot_be_read(serve, log):
    with serve() as server:
        for name in ("m/versions/1", "nothing"):
            asked(server.http_port, "POST", f"/v2/models/{name}/infer", "{")
    known, unknown = lines_of(log)
    assert (known["status"], known["model"], known["version"]) == ("400", "m", "1")
    assert (unknown["status"], unknown["model"]) == ("404", "nothing")


def test_tritons_clients_leave_one_line_each_with_sizes(serve, log):
    with serve() as server:
        client = over_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        client.infer("m", [tensor(over_http)], request_id="by rest")
        client.close()
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)], request_id="by grpc")
        client.close()
    by_rest, by_grpc = lines_of(log)
    assert by_rest["id"] == "by rest" and int(by_rest["taken"]) > 4 < int(by_rest["sent"])
    assert by_grpc["id"] == "by grpc" and int(by_grpc["taken"]) > 4 < int(by_grpc["sent"])
    assert (by_grpc["protocol"], by_grpc["status"]) == ("gRPC", "OK")
    assert by_grpc["call"] == "POST /inference.GRPCInferenceService/ModelInfer"
    assert by_grpc["model"] == "m" and by_grpc["version"] == "1"


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_calls_of_grpc_leave_lines_on_either_transport(serve, log, transport):
    with serve(grpc_transport=transport) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        assert client.is_server_live()
        client.infer("m", [tensor(over_grpc)])
        with pytest.raises(over_grpc.InferenceServerException):
            client.infer("nothing", [tensor(over_grpc)])
        with pytest.raises(over_grpc.InferenceServerException):
            client.infer("m", [tensor(over_grpc, "WRONG")])
        client.close()
    lines = lines_of(log)
    assert [line["status"] for line in lines] == ["OK", "OK", "NOT_FOUND", "INVALID_ARGUMENT"]
    assert [line["model"] for line in lines] == ["-", "m", "nothing", "m"]


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_each_request_of_a_stream_leaves_a_line(serve, log, transport):
    answers = []
    with serve(grpc_transport=transport) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.start_stream(lambda result, error: answers.append(error or result))
        client.async_stream_infer("m", [tensor(over_grpc)], request_id="once")
        several = [tensor(over_grpc, "IN", [1, 2, 3], "INT32", np.int32)]
        client.async_stream_infer("r", several, request_id="thrice")
        client.async_stream_infer("nothing", [tensor(over_grpc)], request_id="never")
        client.stop_stream()
        client.close()
    lines = {line["id"]: line for line in lines_of(log)}
    assert lines.keys() == {"once", "thrice", "never"}
    assert [lines[one]["status"] for one in ("once", "thrice", "never")] == [
        "OK",
        "OK",
        "NOT_FOUND",
    ]
    assert lines["once"]["version"] == lines["thrice"]["version"] == "1"
    assert int(lines["thrice"]["sent"]) > 2 * int(lines["once"]["sent"]) > 0
    assert all(int(line["taken"]) for line in lines.values())
    assert {line["call"] for line in lines.values()} == {
        "POST /inference.GRPCInferenceService/ModelStreamInfer"
    }


def test_a_stream_of_events_leaves_its_line_when_it_ends(serve, log):
    body = json.dumps({"IN": [1, 2, 3], "id": "e"})
    with serve() as server:
        status, events = asked(server.http_port, "POST", "/v2/models/r/generate_stream", body)
        assert status == 200 and events.count(b"data:") >= 3
    [line] = lines_of(log)
    assert (line["status"], line["model"], line["id"]) == ("200", "r", "e")
    assert line["version"] == "1"
    assert int(line["sent"]) == len(events)


def test_generate_says_which_version_has_answered(serve, log):
    with serve() as server:
        status, _ = asked(server.http_port, "POST", "/v2/models/r/generate", '{"IN": [5]}')
        assert status == 200
    [line] = lines_of(log)
    assert (line["model"], line["version"]) == ("r", "1")


def test_the_old_api_leaves_lines(serve, log):
    given = {"INPUT0": np.array([7], np.float32)}
    with serve(allow_trtis=True) as server:
        with TrtisHttp(f"127.0.0.1:{server.http_port}") as client:
            client.infer("m", given, {"OUTPUT0": 0})
        with TrtisGrpc(f"127.0.0.1:{server.grpc_port}") as client:
            client.infer("m", given, {"OUTPUT0": 0})
    lines = [line for line in lines_of(log) if line["model"] != "-"]
    assert [line["protocol"] for line in lines] == ["HTTP/1.1", "gRPC"]
    assert [line["call"].split("?")[0] for line in lines] == [
        "POST /api/infer/m",
        "POST /nvidia.inferenceserver.GRPCService/Infer",
    ]
    assert {line["model"] for line in lines} == {"m"} and {line["version"] for line in lines} == {
        "1"
    }


def test_the_ports_of_cloud_platforms_leave_lines(serve, log, body):
    more = {"allow_sagemaker": True, "sagemaker_port": 0, "sagemaker_default_model": "m"}
    with serve(**more) as server:
        port = server.cloud_ports["SageMaker"]
        assert asked(port, "POST", "/invocations", body)[0] == 200
    [line] = lines_of(log)
    assert (line["call"], line["status"]) == ("POST /invocations", "200")
    assert (line["model"], line["version"]) == ("m", "1")


def test_one_port_for_all_protocols_leaves_lines(serve, log, body):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serve(http_port=port, grpc_port=port) as server:
        assert asked(server.http_port, "POST", "/v2/models/m/infer", body)[0] == 200
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)])
        client.close()
    assert [line["protocol"] for line in lines_of(log)] == ["HTTP/1.1", "gRPC"]


def test_a_line_names_the_api_key_and_never_shows_it(serve, log, tmp_path, body):
    made = make_key("alice and bob")
    (tmp_path / "keys").write_text(made.line)
    with serve(api_key_file=str(tmp_path / "keys")) as server:
        path = "/v2/models/m/infer"
        bearer = {"Authorization": f"Bearer {made.key}"}
        assert asked(server.http_port, "POST", path, body, bearer)[0] == 200
        assert asked(server.http_port, "POST", path, body, {"x-api-key": "inferd_wrong"})[0] == 401
        assert asked(server.http_port, "GET", "/v2")[0] == 401
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)], headers={"x-api-key": made.key})
        with pytest.raises(over_grpc.InferenceServerException):
            client.infer("m", [tensor(over_grpc)], headers={"x-api-key": "inferd_wrong"})
        client.close()
    lines = lines_of(log)
    assert [(line["status"], line["key"]) for line in lines] == [
        ("200", "alice and bob"),
        ("401", "-"),
        ("401", "-"),
        ("OK", "alice and bob"),
        ("UNAUTHENTICATED", "-"),
    ]
    assert made.key not in log.read_text() and "inferd_wrong" not in log.read_text()


@pytest.mark.parametrize("form", ["text", "json", "common"])
def test_no_client_can_write_a_line_of_its_own(serve, log, form, body):
    evil = '\n2026-01-01T00:00:00.000Z "forged" \u2028\x1b[31m\\'
    document = json.loads(body) | {"id": evil}
    with serve(access_log_format=form) as server:
        asked(server.http_port, "POST", "/v2/models/m/infer", json.dumps(document))
        with socket.create_connection(("127.0.0.1", server.http_port)) as client:
            client.sendall(b'GET /v2/"\\x\xff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
            while client.recv(1000):
                pass
    text = log.read_bytes()
    assert text.count(b"\n") == 2 and text.isascii() and b"\x1b" not in text
    if form == "text":
        assert lines_of(log)[0]["id"] == evil
    if form == "json":
        assert json.loads(text.splitlines()[0])["id"] == evil


def test_lines_may_be_json(serve, log, body):
    with serve(access_log_format="json") as server:
        asked(server.http_port, "POST", "/v2/models/m/infer", body)
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)], request_id="a")
        client.close()
    one, other = map(json.loads, log.read_text().splitlines())
    assert re.fullmatch(TIME, one.pop("time")) and one.pop("peer").startswith("127.0.0.1:")
    for name in ("queue_us", "compute_us", "total_us", "out_bytes"):
        assert isinstance(one.pop(name), int), name
    assert one == {
        "protocol": "HTTP/1.1",
        "call": "POST /v2/models/m/infer",
        "status": 200,
        "model": "m",
        "version": "1",
        "id": "",
        "in_bytes": len(body),
    }
    assert (other["status"], other["id"], other["protocol"]) == ("OK", "a", "gRPC")


def test_lines_may_be_in_the_common_log_format(serve, log, body, tmp_path):
    made = make_key("alice")
    (tmp_path / "keys").write_text(made.line)
    with serve(access_log_format="common", api_key_file=str(tmp_path / "keys")) as server:
        key = {"x-api-key": made.key}
        sent = len(asked(server.http_port, "POST", "/v2/models/m/infer", body, key)[1])
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        with pytest.raises(over_grpc.InferenceServerException):
            client.infer("nothing", [tensor(over_grpc)], headers=key)
        client.close()
    one, other = log.read_text().splitlines()
    time = r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\]"
    call = r'"POST /v2/models/m/infer HTTP/1\.1"'
    assert re.fullmatch(rf"127\.0\.0\.1 - alice {time} {call} 200 {sent}", one), one
    call = r'"POST /inference\.GRPCInferenceService/ModelInfer HTTP/2\.0"'
    assert re.fullmatch(rf"127\.0\.0\.1 - alice {time} {call} 404 0", other), other


def test_a_client_that_goes_away_leaves_a_line(serve, log, tmp_path):
    model = """
import asyncio, inferd, numpy as np
from numpy.typing import NDArray

@inferd.model
async def waits(x: NDArray[np.float32]) -> NDArray[np.float32]:
    await asyncio.Event().wait()
    return x
"""
    (tmp_path / "waits.py").write_text(model)
    given = json.dumps(
        {"id": "w", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    ).encode()
    head = b"POST /v2/models/waits/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    with serve(model_repository=(str(tmp_path / "waits.py"),)) as server:
        capacity = server.engine.capacity
        with socket.create_connection(("127.0.0.1", server.http_port)) as client:
            client.sendall(head % len(given) + given)
            wait_until(lambda: capacity.request_count == 1)
        wait_until(lambda: capacity.request_count == 0)
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        with pytest.raises(over_grpc.InferenceServerException):
            client.infer("waits", [tensor(over_grpc, "x")], client_timeout=0.1, request_id="g")
        client.close()
        wait_until(lambda: capacity.request_count == 0)
    over_rest, by_grpc = lines_of(log)
    assert (over_rest["status"], over_rest["id"], over_rest["model"]) == ("499", "w", "waits")
    assert by_grpc["status"] in ("CANCELLED", "DEADLINE_EXCEEDED") and by_grpc["id"] == "g"


def test_requests_that_are_refused_unread_leave_lines(serve, log):
    with serve() as server, socket.create_connection(("127.0.0.1", server.http_port)) as client:
        client.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
    [line] = lines_of(log)
    assert (line["status"], line["model"]) == ("400", "-")


def test_no_inference_is_kept_by_a_connection_that_is_idle(serve, body):
    with serve() as server:
        client = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        client.request("POST", "/v2/models/m/infer", body)
        client.getresponse().read()
        [connection] = server._http.endpoint.connections
        assert connection._reader.heads.request.notes is None
        client.close()


def test_without_an_access_log_calls_note_nothing(repository, echo):
    config = ServerConfig(
        http_port=0, grpc_port=0, allow_metrics=False, model_repository=(str(repository(m=echo())),)
    )
    with server_in_thread(config) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.infer("m", [tensor(over_grpc)])
        endpoint = server._http.endpoint
        assert not server.engine.notes_requests and not endpoint.is_logged
        assert endpoint.routes_for("a", "HTTP/1.1") is endpoint.routes
        client.close()


def test_a_file_that_cannot_be_opened_is_told(repository, echo, tmp_path):
    async def serve():
        config = ServerConfig(
            http_port=0,
            model_repository=(str(repository(m=echo())),),
            access_log=str(tmp_path / "nowhere" / "log"),
        )
        await Server(config).open()

    with pytest.raises(InvalidConfig, match=r"--access-log: cannot open .*log: No such file"):
        asyncio.run(serve())


@pytest.fixture
def start():
    started = []

    def run(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_all_processes_write_one_file_which_sighup_opens_again(
    start, repository, echo, body, log, workers
):
    models = repository(m=echo())
    more = [f"--access-log={log}", f"--workers={workers}"]
    server = start(models, *ON_FREE_PORTS, *more)
    port = server.wait_ready()
    for _ in range(20):
        assert asked(port, "POST", "/v2/models/m/infer", body)[0] == 200
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= 20)
    old = log.with_suffix(".1")
    log.rename(old)
    server.process.send_signal(signal.SIGHUP)
    for _ in range(workers):
        server.wait_for("the access log was opened again")
    for _ in range(20):
        assert asked(port, "POST", "/v2/models/m/infer", body)[0] == 200
    server.process.terminate()
    assert server.end() == 0
    assert len(lines_of(old)) == len(lines_of(log)) == 20


def test_standard_error_takes_lines_too(start, repository, echo, body):
    server = start(repository(m=echo()), *ON_FREE_PORTS, "--access-log=-")
    port = server.wait_ready()
    assert asked(port, "POST", "/v2/models/m/infer", body)[0] == 200
    server.wait_for(r'HTTP/1\.1 "POST /v2/models/m/infer" 200 model="m" version=1')


def test_a_call_without_access_over_grpc_leaves_a_line(serve, log):
    with serve(grpc_restricted_protocol=("inference:admin-key=open",)) as server:
        client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        with pytest.raises(over_grpc.InferenceServerException) as refused:
            client.infer("m", [tensor(over_grpc)])
        client.close()
    [line] = lines_of(log)
    assert refused.value.status() == f"StatusCode.{line['status']}"
