"""`inferd route` as it is used: real servers, HAProxy, and tritonclient over REST and gRPC."""

import contextlib
import json
import signal
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from route_under_load import run, run_with_short_connections
from routed import route, route_process, servers, write_repository
from running_fleet import is_alive, until
from tritonclient.utils import InferenceServerException

SEQUENCE = "sequence_batching { }"
LARGE = [1234567, 1_700_000_000_123, 2**53 + 1, 2**62, 2**63 - 50]
"""Ids of which the first six digits are not enough."""
REPOSITORY = {
    "same": "",
    "kept": SEQUENCE,
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("models"), REPOSITORY)


@pytest.fixture(scope="module")
def world(repository, tmp_path_factory):
    """A route, with two servers behind it, whose models clients load."""
    explicit = ("--model-control-mode=explicit", "--load-model=*")
    with (
        servers(repository, *explicit) as started,
        route(tmp_path_factory.mktemp("route"), [one.place() for one in started]) as routed,
    ):
        routed.wait_known("a", "b")
        routed.servers = started
        yield routed


@pytest.fixture
def rest(world):
    with triton_http.InferenceServerClient(f"127.0.0.1:{world.http_port}") as client:
        yield client


@pytest.fixture
def rpc(world):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{world.grpc_port}") as client:
        yield client


def tensor(module, *numbers):
    array = np.array(numbers, np.int32)
    given = module.InferInput("INPUT0", array.shape, "INT32")
    given.set_data_from_numpy(array)
    return [given]


def counts(world, model):
    """Return how many inferences each server has had."""
    found = []
    for one in world.servers:
        with triton_http.InferenceServerClient(f"127.0.0.1:{one.http_port}") as client:
            [row] = client.get_inference_statistics(model)["model_stats"]
            found.append(row["inference_count"])
    return found


def test_a_client_of_each_protocol_is_answered(rest, rpc):
    assert rest.is_server_live()
    assert rest.is_server_ready()
    assert rpc.is_server_ready()
    assert rest.infer("same", tensor(triton_http, 1, 2)).as_numpy("OUTPUT0").tolist() == [1, 2]
    assert rpc.infer("same", tensor(triton_grpc, 3)).as_numpy("OUTPUT0").tolist() == [3]
    assert rpc.get_model_metadata("same").name == "same"


def test_the_calls_of_one_grpc_channel_are_spread_evenly(world, rpc):
    before = counts(world, "same")
    for _ in range(50):
        rpc.infer("same", tensor(triton_grpc, 1))
    shares = [now - then for now, then in zip(counts(world, "same"), before, strict=True)]
    assert sum(shares) == 50
    assert 20 <= shares[0] <= 30


def test_statistics_are_those_of_all(world, rest, rpc):
    rest.infer("same", tensor(triton_http, 1))
    expected = sum(counts(world, "same"))
    [row] = rest.get_inference_statistics("same")["model_stats"]
    assert row["inference_count"] == expected
    assert rpc.get_inference_statistics("same").model_stats[0].inference_count == expected


@pytest.mark.parametrize("number", [1, 2, 3, 4, *LARGE, "a-text"])
def test_a_sequence_stays_with_one_place_over_both_protocols(world, rest, rpc, number):
    before = counts(world, "kept")
    rest.infer("kept", tensor(triton_http, 1), sequence_id=number, sequence_start=True)
    for _ in range(3):
        rpc.infer("kept", tensor(triton_grpc, 1), sequence_id=number)
    rest.infer("kept", tensor(triton_http, 1), sequence_id=number, sequence_end=True)
    grown = [now - then for now, then in zip(counts(world, "kept"), before, strict=True)]
    assert sorted(grown) == [0, 5]


@pytest.mark.parametrize("first", [100, *LARGE])
def test_several_sequences_are_at_several_places(world, rest, first):
    before = counts(world, "kept")
    for number in range(first, first + 40):
        rest.infer(
            "kept",
            tensor(triton_http, 1),
            sequence_id=number,
            sequence_start=True,
            sequence_end=True,
        )
    assert all(now > then for now, then in zip(counts(world, "kept"), before, strict=True))


def test_a_request_without_a_sequence_is_refused_by_its_place(rest, rpc):
    for client, module in ((rest, triton_http), (rpc, triton_grpc)):
        with pytest.raises(InferenceServerException, match="must specify a non-zero or non-empty"):
            client.infer("kept", tensor(module, 1))


def test_a_compressed_message_of_a_sequence_reaches_its_place(world, rpc):
    before = counts(world, "kept")
    given, packed = tensor(triton_grpc, *range(1000)), {"compression_algorithm": "gzip"}
    rpc.infer("kept", given, sequence_id=7, sequence_start=True)
    rpc.infer("kept", given, sequence_id=7, **packed)
    answer = rpc.infer("kept", given, sequence_id=7, sequence_end=True, **packed)
    assert answer.as_numpy("OUTPUT0").tolist() == list(range(1000))
    grown = [now - then for now, then in zip(counts(world, "kept"), before, strict=True)]
    assert sorted(grown) == [0, 3]


def test_a_large_message_of_a_sequence_reaches_its_place(world, rpc):
    before = counts(world, "kept")
    given = tensor(triton_grpc, *range(1_000_000))
    for number in range(3):
        rpc.infer("kept", given, sequence_id=9, sequence_start=not number)
    grown = [now - then for now, then in zip(counts(world, "kept"), before, strict=True)]
    assert sorted(grown) == [0, 3]


def test_a_sequence_whose_id_comes_late_in_a_message_needs_metadata(rpc):
    given, how = tensor(triton_grpc, 1), {"sequence_start": True, "sequence_end": True}
    with pytest.raises(InferenceServerException, match="send the metadata inferd-model and"):
        rpc.infer("kept", given, sequence_id=5, request_id="x" * 40_000, **how)
    headers = {"inferd-sequence-id": "5"}
    rpc.infer("kept", given, sequence_id=5, request_id="x" * 40_000, headers=headers, **how)


def test_a_sequence_whose_id_comes_late_needs_a_header(world):
    data = list(range(20000))
    tensors = [{"name": "INPUT0", "datatype": "INT32", "shape": [20000], "data": data}]
    parameters = {"sequence_id": 8, "sequence_start": True}
    body = json.dumps({"inputs": tensors, "parameters": parameters}).encode()
    url = f"http://127.0.0.1:{world.http_port}/v2/models/kept/infer"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(url, body))
    assert error.value.code == 400
    assert "send the header inferd-sequence-id" in json.load(error.value)["error"]
    request = urllib.request.Request(url, body, {"inferd-sequence-id": "8"})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["outputs"][0]["data"] == data


def test_a_compressed_body_of_a_sequence_needs_a_header(rest):
    given, packed = tensor(triton_http, *range(1000)), {"request_compression_algorithm": "gzip"}
    packed |= {"sequence_id": 11, "sequence_start": True}
    with pytest.raises(InferenceServerException, match="send the header inferd-sequence-id"):
        rest.infer("kept", given, **packed)
    answer = rest.infer("kept", given, headers={"inferd-sequence-id": "11"}, **packed)
    assert answer.as_numpy("OUTPUT0").tolist() == list(range(1000))


def test_a_model_is_unloaded_and_loaded_at_all_places(world, rest, rpc):
    rest.unload_model("same")
    assert not rpc.is_model_ready("same")
    for one in world.servers:
        with triton_http.InferenceServerClient(f"127.0.0.1:{one.http_port}") as client:
            assert not client.is_model_ready("same")
    rpc.load_model("same")
    assert [row["state"] for row in rest.get_model_repository_index() if row["name"] == "same"] == [
        "READY"
    ]
    for _ in range(4):
        rest.infer("same", tensor(triton_http, 1))


def test_a_load_that_fails_everywhere_is_worded_as_by_one_server(world, rest):
    with triton_http.InferenceServerClient(f"127.0.0.1:{world.servers[0].http_port}") as alone:
        texts = []
        for client in (alone, rest):
            with pytest.raises(InferenceServerException) as error:
                client.load_model("nothing")
            texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_what_only_one_place_has_is_sent_there(world, rest, rpc):
    with triton_http.InferenceServerClient(f"127.0.0.1:{world.servers[1].http_port}") as alone:
        alone.unload_model("same")
    with triton_http.InferenceServerClient(f"127.0.0.1:{world.http_port}") as client:
        client.load_model("kept")  # has the route look at all places before it answers
    index = {row["name"]: row for row in rest.get_model_repository_index()}
    assert index["same"]["state"] == "READY"
    assert index["same"]["reason"].startswith("at b: ")
    for _ in range(10):
        rest.infer("same", tensor(triton_http, 1))
        rpc.infer("same", tensor(triton_grpc, 1))
        assert rpc.is_model_ready("same")
    stream_refused(rpc)
    rest.load_model("same")
    rpc.infer("same", tensor(triton_grpc, 1))


def stream_refused(rpc):
    """A stream says what it is about in its metadata, or is refused."""
    assert "send the metadata inferd-model" in str(streamed(rpc))
    assert streamed(rpc, headers={"inferd-model": "same"}) is None


def streamed(rpc, **how):
    """Return the error that a request on a stream of its own gets, or None."""
    errors = []
    rpc.start_stream(lambda result, error: errors.append(error), **how)
    with contextlib.suppress(InferenceServerException):  # the stream has ended already
        rpc.async_stream_infer("same", tensor(triton_grpc, 1))
    until(lambda: errors)
    rpc.stop_stream()
    return errors[0]


def test_log_settings_are_changed_at_all_places(world, rest):
    rest.update_log_settings({"log_verbose_level": 1})
    for one in world.servers:
        with triton_http.InferenceServerClient(f"127.0.0.1:{one.http_port}") as client:
            assert client.get_log_settings()["log_verbose_level"] == 1
    assert rest.get_log_settings()["log_verbose_level"] == 1


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/about", "/ui/static/app.js"])
def test_dashboards_are_at_their_places_alone(world, path):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{world.http_port}{path}", timeout=30)
    with refused.value as answer:
        assert answer.status == 404
        assert "there is no dashboard here" in json.load(answer)["error"]


def test_metrics_are_those_of_the_route(world):
    url = f"http://127.0.0.1:{world.metrics_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    assert 'inferd_route_place_up{place="a"} 1.0' in text
    assert "inferd_route_haproxy_up 1" in text


# --- life ---


@pytest.mark.parametrize(("way", "count"), [("term", 8), ("kill", 3900)])
def test_no_request_is_lost_when_a_server_ends(way, count, tmp_path):
    load, ended = run(way, 1500, tmp_path, count=count)
    assert load.lost == {}
    assert load.answered >= 1500
    assert ended >= 1


def test_no_request_is_lost_when_servers_end_old_connections(tmp_path):
    assert run_with_short_connections(6000, tmp_path).lost == {}


@pytest.mark.slow
def test_places_come_and_go_with_the_file(repository, tmp_path):
    with servers(repository, count=2) as (a, b), route(tmp_path, [a.place()]) as routed:
        routed.wait_known("a")
        routed.rewrite([a.place(), b.place()])
        routed.wait_known("b")
        routed.rewrite([b.place()])
        url = f"http://127.0.0.1:{routed.http_port}/v2/models/same"
        a.end()
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer)["name"] == "same"


@pytest.mark.slow
def test_a_bad_file_leaves_the_places_as_they_were(repository, tmp_path):
    with servers(repository, count=1) as (a,), route(tmp_path, [a.place()]) as routed:
        routed.wait_known("a")
        routed.file.write_text("{")
        routed.process.wait_for(r"the places stay as they were: .*is not valid JSON")
        url = f"http://127.0.0.1:{routed.http_port}/v2/health/ready"
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer) == {"live": True, "ready": True}
        routed.rewrite([a.place()])
        routed.process.wait_for("tells its places again")


def test_one_port_carries_both_protocols(repository, tmp_path):
    port = free_port()
    ports = (f"--http-port={port}", f"--grpc-port={port}")
    with servers(repository, count=1) as (a,), route(tmp_path, [a.place()], *ports) as routed:
        routed.wait_known("a")
        where = f"127.0.0.1:{port}"
        assert (routed.http_port, routed.grpc_port) == (port, port)
        with triton_http.InferenceServerClient(where) as client:
            assert client.infer("same", tensor(triton_http, 1)).as_numpy("OUTPUT0").tolist() == [1]
        with triton_grpc.InferenceServerClient(where) as client:
            assert client.infer("same", tensor(triton_grpc, 2)).as_numpy("OUTPUT0").tolist() == [2]


def free_port():
    """Return a port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_places_it_is_live_and_not_ready(tmp_path):
    with route(tmp_path, []) as routed:
        base = f"http://127.0.0.1:{routed.http_port}/v2/health"
        with urllib.request.urlopen(f"{base}/live") as answer:
            assert json.load(answer) == {"live": True}
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{base}/ready")
        assert error.value.code == 503
        assert json.load(error.value) == {"error": "no place is ready (inferd route)"}
        assert routed.end() == 0


def haproxy_of(pid):
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


def test_haproxy_ends_with_a_route_that_is_killed(tmp_path):
    with route(tmp_path, []) as routed:
        haproxy = haproxy_of(routed.process.process.pid)
        assert is_alive(haproxy)
        routed.process.process.send_signal(signal.SIGKILL)
        until(lambda: not is_alive(haproxy))


@pytest.mark.slow
def test_tls_is_ended_in_front(repository, tmp_path, certificates):
    tls = (
        f"--tls-cert={certificates / 'server.pem'}",
        f"--tls-key={certificates / 'server.key'}",
    )
    with ExitStack() as stack:
        [a] = stack.enter_context(servers(repository, count=1))
        routed = stack.enter_context(route(tmp_path, [a.place()], *tls))
        routed.wait_known("a")
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        url = f"https://127.0.0.1:{routed.http_port}/v2/models/same"
        with urllib.request.urlopen(url, context=context) as answer:
            assert json.load(answer)["name"] == "same"
        rpc = triton_grpc.InferenceServerClient(
            f"127.0.0.1:{routed.grpc_port}", ssl=True, root_certificates=certificates / "ca.pem"
        )
        stack.enter_context(rpc)
        assert rpc.infer("same", tensor(triton_grpc, 3)).as_numpy("OUTPUT0").tolist() == [3]


def test_a_port_in_use_is_named(tmp_path):
    with route(tmp_path, []) as routed:
        other = Path(tmp_path / "places.json")
        process = route_process(
            f"--places={other}", "--address=127.0.0.1", f"--http-port={routed.http_port}"
        )
        assert process.end() == 1
        process.process.stdout.close()
        assert "cannot listen on 127.0.0.1:" in process.said
        assert "--http-port (0 lets the system choose)" in process.said
