"""The other URLs of the old API: health, status, profile, control, and what is no URL of it."""

import asyncio
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format

from inferd.config.server import ServerConfig
from inferd.server.server import Server

HEADER = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
MEMORY = "/api/sharedmemorycontrol"
UNLOADING = 4


def status_of(client, messages, path="/api/status?format=binary"):
    answer = client.get(path)
    assert (answer.code, answer.reason) == (200, "SUCCESS")
    assert answer.headers["content-type"] == "application/octet-stream"
    return messages.read("ServerStatus", answer.body)


def state_of(client, messages, model):
    return status_of(client, messages).model_status[model].version_status[1]


# --- health ---


@pytest.mark.parametrize("mode", ["live", "ready"])
def test_health(http_client, mode):
    answer = http_client.get(f"/api/health/{mode}")
    assert (answer.code, answer.reason, answer.body) == (200, "SUCCESS", b"")


async def got(port, path, *lines):
    """The head of the answer to a GET; an inference is a POST."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    verb = "POST" if "infer" in path else "GET"
    head = [f"{verb} {path} HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]
    writer.write("\r\n".join(head).encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def test_live_waits_for_the_models_and_ends_with_the_server(repository):
    async def go():
        config = ServerConfig(http_port=0, grpc_port=0, model_repository=(str(repository),))
        server = Server(config)
        await server.open()
        before = [
            await got(server.http_port, path)
            for path in ("/api/health/live", "/api/health/ready", "/v2/health/live")
        ]
        asked = await got(server.http_port, "/api/infer/flat", f"NV-InferRequest: {HEADER}")
        assert "NV-Status: code: UNAVAILABLE" in asked
        await server.load()
        loaded = await got(server.http_port, "/api/health/live")
        server.engine.drain()
        after = [
            await got(server.http_port, path)
            for path in ("/api/health/live", "/api/health/ready", "/api/status")
        ]
        await server.stop()
        return before, loaded, after

    before, loaded, after = asyncio.run(go())
    for answer in before[:2]:  # the question was answered, the answer is no
        assert answer.startswith("HTTP/1.1 400 ")
        assert "NV-Status: code: SUCCESS" in answer
    assert before[2].startswith("HTTP/1.1 200 ")
    assert loaded.startswith("HTTP/1.1 200 ")
    for answer in after[:2]:
        assert answer.startswith("HTTP/1.1 400 ")
        assert "NV-Status: code: UNAVAILABLE" in answer
    assert "ready_state: SERVER_EXITING" in after[2]


@pytest.fixture
def broken(tmp_path):
    """A repository with a model that does not load, and one that does."""
    for name, config in {"good": 'backend: "identity"', "bad": 'backend: "none"'}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        tensors = 'input { name: "I" data_type: TYPE_INT32 dims: 1 }'
        more = tensors + tensors.replace("input", "output").replace('"I"', '"O"')
        (tmp_path / name / "config.pbtxt").write_text(config + more)
    return str(tmp_path)


@pytest.mark.parametrize(("strict", "code"), [(True, 400), (False, 200)])
def test_a_model_that_failed_makes_a_strict_server_not_ready(
    serve, connect, messages, broken, strict, code
):
    with serve(model_repository=(broken,), strict_readiness=strict) as server:
        client = connect(server)
        answer = client.get("/api/health/ready")
        assert (answer.code, answer.reason) == (code, "SUCCESS")
        assert client.get("/api/health/live").code == 200
        told = status_of(client, messages)
    assert told.ready_state == 2
    assert told.model_status["good"].version_status[1].ready_state == 1
    [version] = told.model_status["bad"].version_status.values()
    assert version.ready_state == 2
    assert version.ready_state_reason.message


def test_a_model_without_known_versions_says_why(serve, connect, messages, broken):
    Path(broken, "bad", "config.pbtxt").write_text('backend: "identity" max_batch_size: -1')
    with serve(model_repository=(broken,)) as server:
        told = status_of(connect(server), messages)
        assert told.model_status["bad"].config.name == "bad"
        [(number, version)] = told.model_status["bad"].version_status.items()
        assert (number, version.ready_state) == (-1, 0)
        assert "max_batch_size" in version.ready_state_reason.message
        assert connect(server).get("/api/health/ready").code == 200


@pytest.mark.parametrize("version", ["", "/1"])
def test_a_model_that_failed_is_not_available(serve, connect, broken, version):
    with serve(model_repository=(broken,)) as server:
        answer = connect(server).infer(f"bad{version}", HEADER, b"\0" * 4)
        assert (answer.code, answer.reason) == (400, "UNAVAILABLE")
        assert "'bad'" in answer.status.msg


# --- status ---


def test_status_tells_what_models_are_and_did(http_client, messages, pair):
    def stats():
        told = status_of(http_client, messages, "/api/status/pair?format=binary")
        assert list(told.model_status) == ["pair"]
        return told.model_status["pair"]

    before = stats().version_status[1]
    header, body, _ = pair
    http_client.infer("pair", header, body)
    http_client.infer("pair", header.replace("batch_size: 1", "batch_size: 0"), body)
    two = 'batch_size: 2 input { name: "INPUT0" } input { name: "INPUT1" }'
    http_client.infer("pair", two, body * 2)
    after = stats()
    version = after.version_status[1]
    assert version.ready_state == 1
    assert version.model_execution_count - before.model_execution_count == 2
    assert version.model_inference_count - before.model_inference_count == 3
    assert version.last_inference_timestamp_milliseconds > 1.6e12
    for size in (1, 2):  # what was refused at the door is not counted
        new, old = version.infer_stats[size], before.infer_stats[size]
        assert new.success.count - old.success.count == 1
        assert new.compute.count - old.compute.count == 1
        assert new.queue.count == new.success.count
        assert new.success.total_time_ns >= new.compute.total_time_ns > 0
        parts = (new.compute_input, new.compute_infer, new.compute_output)
        assert sum(part.total_time_ns for part in parts) == new.compute.total_time_ns


def test_status_counts_failures_apart(http_client, messages):
    header = 'batch_size: 1 input { name: "INPUT0" dims: 1 } output { name: "OUTPUT0" }'
    answer = http_client.infer("faulty", header, b"\0" * 4)
    assert (answer.code, answer.reason) == (400, "INTERNAL")
    told = status_of(http_client, messages, "/api/status/faulty?format=binary")
    stats = told.model_status["faulty"].version_status[1].infer_stats
    assert stats[1].failed.count == 1
    assert stats[1].success.count == 0


def test_the_configuration_is_in_the_old_layout(http_client, messages):
    told = status_of(http_client, messages)
    models = told.model_status
    simple = models["simple"].config
    assert simple.platform == "onnxruntime_onnx"
    assert simple.max_batch_size == 8
    assert [(one.name, one.data_type, list(one.dims)) for one in simple.input] == [
        ("INPUT0", 8, [16]),
        ("INPUT1", 8, [16]),
    ]
    assert simple.version_policy.latest.num_versions == 1
    assert simple.default_model_filename == "model.onnx"
    [group] = simple.instance_group
    assert (group.name, group.kind) == ("simple", 2)
    assert group.count >= 1
    assert simple.optimization.input_pinned_memory.enable
    assert models["words"].config.platform == "custom"
    assert models["words"].config.input[0].data_type == 13
    assert list(models["some"].config.version_policy.specific.versions) == [1, 3]
    sequence = models["sequence"].config.sequence_batching
    assert sequence.max_sequence_idle_microseconds == 60_000_000
    assert models["größe"].config.name == "größe"
    groups = models["two_groups"].config.instance_group
    assert [(one.name, one.count) for one in groups] == [("two_groups_0", 2), ("two_groups_1", 1)]
    ensemble = models["whole"].config
    assert (ensemble.platform, list(ensemble.instance_group)) == ("ensemble", [])
    [step] = ensemble.ensemble_scheduling.step
    assert (step.model_name, step.model_version, dict(step.input_map)) == (
        "ten",
        -1,
        {"INPUT0": "IN"},
    )
    [input_] = models["shaped"].config.input
    assert (list(input_.dims), list(input_.reshape.shape)) == ([4], [2, 2])


def test_a_model_that_is_not_ready_has_its_configuration_too(serve, connect, messages, broken):
    def config(client):
        return status_of(client, messages).model_status["good"].config

    odd = 'backend: "identity" max_batch_size: 8 input { name: "I" data_type: TYPE_BF16 dims: 0 }'
    Path(broken, "bad", "config.pbtxt").write_text(odd)
    with serve(model_repository=(broken,), model_control_mode="explicit") as server:
        client = connect(server)
        assert client.post("/api/modelcontrol/load/good").code == 200
        loaded = config(client)
        assert client.post("/api/modelcontrol/unload/good").code == 200
        assert config(client) == loaded
        assert client.post("/api/modelcontrol/load/bad").code == 400
        failed = status_of(client, messages).model_status["bad"].config
    assert [(one.name, one.data_type, list(one.dims)) for one in failed.input] == [("I", 0, [0])]
    assert (failed.max_batch_size, failed.version_policy.latest.num_versions) == (8, 1)
    assert [group.name for group in failed.instance_group] == ["bad"]


def test_all_models_or_one(http_client, messages):
    told = status_of(http_client, messages)
    assert {"pair", "words", "größe"} <= set(told.model_status)
    assert (told.id, told.ready_state) == ("inference:0", 2)
    assert told.version
    assert told.uptime_ns > 0
    assert status_of(http_client, messages, "/api/status/?format=binary").model_status
    one = status_of(http_client, messages, "/api/status/some?format=binary")
    assert list(one.model_status) == ["some"]
    assert set(one.model_status["some"].version_status) == {1, 3}
    assert not one.HasField("status_stats")


def test_calls_are_counted_when_all_models_are_told(http_client, messages):
    before = status_of(http_client, messages)
    http_client.get("/api/health/live")
    http_client.get("/api/health/none")
    after = status_of(http_client, messages)
    assert after.status_stats.success.count - before.status_stats.success.count == 1
    assert after.health_stats.success.count - before.health_stats.success.count == 1
    assert after.health_stats.success.total_time_ns > before.health_stats.success.total_time_ns


def test_an_unknown_model_has_no_status(http_client):
    answer = http_client.get("/api/status/none")
    assert (answer.code, answer.reason, answer.body) == (400, "INVALID_ARG", b"")
    assert "'none'" in answer.status.msg


def test_status_as_text_is_ascii_whatever_models_are_called(http_client, messages):
    answer = http_client.get("/api/status/gr%C3%B6%C3%9Fe")
    assert answer.body.isascii()
    assert list(messages.read("ServerStatus", answer.body.decode()).model_status) == ["größe"]


def test_a_name_beyond_ascii_may_be_sent_as_it_is(server):
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as client:
        client.sendall("GET /api/status/größe HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 200 ")


def test_status_as_text_binary_and_json(http_client, messages):
    text = http_client.get("/api/status/some")
    assert text.headers["content-type"].startswith("text/plain")
    assert text.body.isascii()
    binary = status_of(http_client, messages, "/api/status/some?format=binary")
    found = [messages.read("ServerStatus", text.body.decode()), binary]
    for path, headers in (
        ("/api/status/some?format=json", {}),
        ("/api/status/some", {"Accept": "application/json"}),
    ):
        answer = http_client.get(path, **headers)
        assert answer.headers["content-type"] == "application/json"
        assert b"model_status" in answer.body  # the names of the fields, not lowerCamelCase
        found.append(json_format.Parse(answer.body, messages("ServerStatus")))
    for one in found:
        one.uptime_ns = 0
    assert found == [found[0]] * 4
    other = http_client.get("/api/status/some?format=text", Accept="application/json")
    assert other.headers["content-type"].startswith("text/plain")


# --- control ---


def test_models_are_loaded_and_unloaded(serve, connect, messages):
    with serve(model_control_mode="explicit") as server:
        client = connect(server)
        assert client.infer("flat", HEADER, b"\0" * 16).reason == "UNAVAILABLE"
        for _ in range(2):  # loading a loaded model reads it again
            answer = client.post("/api/modelcontrol/load/flat")
            assert (answer.code, answer.reason, answer.body) == (200, "SUCCESS", b"")
        assert client.infer("flat", HEADER, b"\0" * 16).code == 200
        assert client.get("/api/health/ready").code == 200
        assert client.post("/api/modelcontrol/unload/flat").code == 200
        assert client.infer("flat", HEADER, b"\0" * 16).reason == "UNAVAILABLE"
        assert client.get("/api/health/ready").code == 200
        told = state_of(client, messages, "flat")
        deadline = time.monotonic() + 30
        while told.ready_state == UNLOADING and time.monotonic() < deadline:
            told = state_of(client, messages, "flat")
        assert (told.ready_state, told.ready_state_reason.message) == (2, "unloaded")
        assert client.post("/api/modelcontrol/unload/none").code == 200
        answer = client.post("/api/modelcontrol/load/none")
        assert (answer.code, answer.reason) == (400, "INTERNAL")
        assert "'none'" in answer.status.msg
        assert status_of(client, messages).model_control_stats.success.count == 4


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_models_are_not_loaded_in_other_modes(http_client, verb):
    answer = http_client.post(f"/api/modelcontrol/{verb}/flat")
    assert (answer.code, answer.reason) == (400, "UNAVAILABLE")
    assert http_client.infer("flat", HEADER, b"\0" * 16).code == 200


def test_a_model_that_does_not_load_is_an_internal_error(serve, connect, broken):
    with serve(model_repository=(broken,), model_control_mode="explicit") as server:
        answer = connect(server).post("/api/modelcontrol/load/bad")
        assert (answer.code, answer.reason) == (400, "INTERNAL")


def test_the_index_names_all_models(serve, connect, messages):
    with serve(model_control_mode="explicit") as server:
        client = connect(server)
        answer = client.get("/api/repository/index?format=binary")
        names = [one.name for one in messages.read("ModelRepositoryIndex", answer.body).models]
        text = client.get("/api/repository/index")
        assert messages.read("ModelRepositoryIndex", text.body.decode()).models[0].name
    assert names == sorted(names)
    assert {"flat", "some", "größe"} <= set(names)


def test_the_life_of_a_region(http_client, messages, shared):
    given = shared()
    assert http_client.post(f"{MEMORY}/register/r1/{given.key}/16/256").code == 200
    again = http_client.post(f"{MEMORY}/register/r1/{given.key}/16/256")
    assert (again.code, again.reason) == (400, "ALREADY_EXISTS")
    [region] = messages.read(
        "SharedMemoryStatus", http_client.get(f"{MEMORY}/status?format=binary").body
    ).shared_memory_region
    assert (region.name, region.byte_size) == ("r1", 256)
    assert region.system_shared_memory.shared_memory_key == given.key
    assert region.system_shared_memory.offset == 16
    text = http_client.get(f"{MEMORY}/status").body.decode()
    assert messages.read("SharedMemoryStatus", text).shared_memory_region[0] == region
    assert http_client.post(f"{MEMORY}/unregister/none").code == 200
    assert "r1" in http_client.get(f"{MEMORY}/status").body.decode()
    assert http_client.post(f"{MEMORY}/unregister/r1").code == 200
    assert http_client.get(f"{MEMORY}/status").body == b""


def test_all_regions_at_once(http_client, shared):
    for name in ("all", "r2"):
        assert http_client.post(f"{MEMORY}/register/{name}/{shared().key}/0/64").code == 200
    assert http_client.post(f"{MEMORY}/unregister/all").code == 200  # the one of that name
    assert b"r2" in http_client.get(f"{MEMORY}/status").body
    assert http_client.post(f"{MEMORY}/unregisterall").code == 200
    assert http_client.get(f"{MEMORY}/status").body == b""


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("register/r//no_such_object_of_tests/0/256", "INTERNAL"),
        ("register/r//key/-1/256", "INVALID_ARG"),
        ("register/r//key/0/many", "INVALID_ARG"),
        ("register/r//key/0/0", "INVALID_ARG"),
        ("register/r//key/0/99999999999999999999", "INVALID_ARG"),
        ("register/r//key/0", "INVALID_ARG"),
        ("register//key/0/256", "INVALID_ARG"),
        ("register/r", "INVALID_ARG"),
        ("cudaregister/r/64/0", "INVALID_ARG"),
        ("cudaregister/r/64/first", "INVALID_ARG"),
        ("unregister", "INVALID_ARG"),
        ("unregister/r/more", "INVALID_ARG"),
    ],
)
def test_a_region_that_cannot_be_registered(http_client, path, reason):
    answer = http_client.post(f"{MEMORY}/{path}", b"\0" * 63)
    assert (answer.code, answer.reason) == (400, reason)


def test_a_gpu_s_memory_needs_a_gpu(http_client):
    answer = http_client.post(f"{MEMORY}/cudaregister/r/64/0", b"\0" * 64)
    assert (answer.code, answer.reason) == (400, "INVALID_ARG")


@pytest.mark.parametrize(
    ("query", "reason"),
    [("?cmd=start", "UNSUPPORTED"), ("?cmd=stop", "UNSUPPORTED"), ("?cmd=x", "INVALID_ARG"),
     ("", "INVALID_ARG")],
)  # fmt: skip
def test_profiling_is_refused(http_client, query, reason):
    answer = http_client.get(f"/api/profile{query}")
    assert (answer.code, answer.reason) == (400, reason)


# --- what is no call ---


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/", "/api/nothing", "/%61pi/none", "/api/none?x=/v2", "/api/health",
     "/api/health/well", "/api/health/live/x", "/api/infer",
     "/api/status/a/b", "/api/modelcontrol/reload/m", "/api/infer/pair/1/x", "/api//", "/api/v2",
     "/api/%ff", "/api/repository", "/api/sharedmemorycontrol/none"],
)  # fmt: skip
def test_what_is_not_there_is_an_invalid_argument(http_client, path):
    method = "POST" if any(word in path for word in ("infer", "control")) else "GET"
    answer = http_client.ask(method, path)
    assert (answer.code, answer.reason, answer.body) == (400, "INVALID_ARG", b"")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", f"/api/{path}") for path in ("health/live", "health/x", "status", "status/m")),
        *(("GET", f"/api/{path}") for path in ("infer/pair", "infer", "modelcontrol/load/m")),
        *(("PUT", f"/api/{path}") for path in ("status", "infer/pair", "profile")),
        ("DELETE", "/api/modelcontrol/load/m"),
        ("POST", "/api/repository/index"),
        ("GET", f"{MEMORY}/unregisterall"),
        ("GET", f"{MEMORY}/register/r"),
        ("POST", f"{MEMORY}/status"),
    ],
)
def test_a_wrong_method_is_405_and_says_nothing_more(http_client, method, path):
    answer = http_client.ask(method, path)
    assert (answer.code, answer.body) == (405, b"")
    assert "nv-status" not in answer.headers


def test_outside_of_it_everything_is_v2(http_client):
    for path in ("/apis", "//api", "/v1/models"):
        answer = http_client.get(path)
        assert answer.code == 404
        assert "nv-status" not in answer.headers


# --- options ---


def test_it_can_be_turned_off(serve, connect):
    with serve(allow_trtis=False) as server:
        client = connect(server)
        for path in ("/api/health/live", "/api/status"):
            answer = client.get(path)
            assert answer.code == 404
            assert "nv-status" not in answer.headers
        assert client.get("/v2/health/live").code == 200


def test_it_has_the_server_s_name(serve, connect, messages):
    with serve(id='my "server"\n') as server:
        client = connect(server)
        assert client.get("/api/health/live").status.server_id == 'my "server"\n'
        assert status_of(client, messages).id == 'my "server"\n'


@pytest.mark.parametrize(
    ("group", "refused"),
    [
        ("inference", ["POST /api/infer/flat", "POST /api/infer/flat/1"]),
        ("health", ["GET /api/health/live", "GET /api/health/ready"]),
        ("metadata", ["GET /api/status", "GET /api/status/flat"]),
        ("model-config", ["GET /api/status"]),
        ("statistics", ["GET /api/status/flat"]),
        ("model-repository", ["POST /api/modelcontrol/load/flat", "GET /api/repository/index"]),
        ("shared-memory", [f"GET {MEMORY}/status", f"POST {MEMORY}/unregisterall"]),
        ("trace", ["GET /api/profile?cmd=start"]),
    ],
)
def test_restrictions_hold_here_too(serve, connect, group, refused):
    with serve(http_restricted_api=(f"{group}:pass=word",)) as server:
        client = connect(server)
        header = {"NV-InferRequest": HEADER}
        for line in refused:
            method, path = line.split()
            answer = client.ask(method, path, b"\0" * 16, header)
            assert (answer.code, answer.reason) == (403, "UNAVAILABLE")
            assert client.ask(method, path, b"\0" * 16, header | {"pass": "word"}).code != 403
        others = {"/api/health/live", "/api/status"} - {line.split()[1] for line in refused}
        if group not in ("metadata", "statistics", "model-config"):
            assert all(client.get(path).code == 200 for path in others)


def test_api_keys_hold_here_too(serve, connect, tmp_path):
    from inferd.config.options.access import hash_key

    file = tmp_path / "keys"
    file.write_text(f"me:{hash_key(b'secret').hex()}\n")
    with serve(api_key_file=str(file)) as server:
        client = connect(server)
        assert client.get("/api/health/live").code == 200
        for key, code in (("", 401), ("wrong", 401), ("secret", 200)):
            headers = {"x-api-key": key} if key else {}
            assert client.get("/api/status", **headers).code == code
            answer = client.infer("flat", HEADER, b"\0" * 16, headers)
            assert answer.code == code
            assert (answer.reason == "SUCCESS") == (code == 200)
        # Who may not call is told so before a large body has come.
        large = connect(server).infer("flat", HEADER, b"\0" * 1_000_000)
        assert (large.code, large.reason) == (401, "UNAVAILABLE")


def test_headers_become_parameters_as_in_v2(serve, connect):
    with serve(http_header_forward_pattern="^x-mine") as server:
        client = connect(server)
        answer = client.infer("flat", HEADER, b"\0" * 16, {"x-mine": "1"})
        assert answer.code == 200
    with serve(http_header_forward_pattern="^priority") as server:
        answer = connect(server).infer("flat", HEADER, b"\0" * 16, {"priority": "1"})
        assert (answer.code, answer.reason) == (400, "INVALID_ARG")


# --- sequences ---


def test_a_sequence_over_http(http_client):
    def step(flags, number=7):
        header = f"{HEADER} correlation_id: {number} flags: {flags}"
        return http_client.infer("sequence", header, np.int32([flags]).tobytes())

    assert step(0).reason == "INVALID_ARG"  # it has not begun
    assert [step(flags).reason for flags in (1, 0, 0, 2)] == ["SUCCESS"] * 4
    assert step(0).reason == "INVALID_ARG"  # it has ended
    assert step(3).reason == "SUCCESS"
    assert step(1, number=0).reason == "INVALID_ARG"
    assert [step(flags).reason for flags in (1, 1, 2)] == ["SUCCESS"] * 3


def test_other_models_pass_over_sequences(http_client):
    header = f"{HEADER} correlation_id: 5 flags: 2"
    assert http_client.infer("flat", header, b"\0" * 16).code == 200
