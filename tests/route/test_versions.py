"""Places that have different versions of a model, behind `inferd route`: as in a rolling update."""

import json
import queue
import re
import urllib.request

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from routed import route, servers, write_repository

from inferd.wire.proto import encode, parse

MODELS = {"m": "", "kept": "sequence_batching { }"}
TIMES = 6
"""By chance, requests would all reach the place that has their version once in 64 times."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A route to two servers, a with version 1 of all models, and b with version 2."""
    old, new = (
        write_repository(tmp_path_factory.mktemp("models"), MODELS, version) for version in "12"
    )
    with servers(old, count=1) as (a,), servers(new, count=1) as (b,):
        places = [a.place(), b.place(name="b")]
        with route(tmp_path_factory.mktemp("route"), places) as routed:
            routed.wait_known("a", "b")
            yield routed


NUMBERS = np.arange(4, dtype=np.int32)


def tensors(module):
    given = module.InferInput("INPUT0", NUMBERS.shape, "INT32")
    given.set_data_from_numpy(NUMBERS)
    return [given]


def over_rest(world, model, version, **more):
    with triton_http.InferenceServerClient(f"127.0.0.1:{world.http_port}") as client:
        answer = client.infer(model, tensors(triton_http), version, **more)
        return answer.get_response()["model_version"]


def over_grpc(world, model, version, **more):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{world.grpc_port}") as client:
        answer = client.infer(model, tensors(triton_grpc), version, **more)
        return answer.get_response().model_version


def over_grpc_compressed(world, model, version, **more):
    return over_grpc(world, model, version, compression_algorithm="gzip", **more)


def over_grpc_with_metadata(world, model, version):
    headers = {"inferd-model": model, "inferd-model-version": version}
    return over_grpc_compressed(world, model, version, headers=headers)


HEADER = 'batch_size: 1 input { name: "INPUT0" dims: [4] } output { name: "OUTPUT0" }'


def over_the_older_rest(world, model, version):
    url = f"http://127.0.0.1:{world.http_port}/api/infer/{model}/{version}"
    request = urllib.request.Request(url, NUMBERS.tobytes(), {"NV-InferRequest": HEADER})
    with urllib.request.urlopen(request) as answer:
        return re.search(r"model_version: (\d+)", answer.headers["NV-InferResponse"])[1]


def older_message(model, version):
    meta = {
        "batch_size": 1,
        "input": [{"name": "INPUT0", "dims": [4]}],
        "output": [{"name": "OUTPUT0"}],
    }
    return encode(
        "nvidia.inferenceserver.InferRequest",
        model_name=model,
        model_version=version,
        meta_data=meta,
        raw_input=[NUMBERS.tobytes()],
    )


def over_the_older_grpc(world, model, version):
    with grpc.insecure_channel(f"127.0.0.1:{world.grpc_port}") as channel:
        call = channel.unary_unary("/nvidia.inferenceserver.GRPCService/Infer")
        data = call(older_message(model, int(version)))
    answer = parse("nvidia.inferenceserver.InferResponse", data)
    assert answer.request_status.code == 1, answer.request_status.msg
    return str(answer.meta_data.model_version)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "ask",
    [
        over_rest,
        over_grpc,
        over_grpc_compressed,
        over_grpc_with_metadata,
        over_the_older_rest,
        over_the_older_grpc,
    ],
)
def test_a_request_reaches_a_place_that_has_its_version(world, ask, version):
    assert [ask(world, "m", version) for _ in range(TIMES)] == [version] * TIMES


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("ask", [over_rest, over_grpc, over_grpc_compressed])
def test_a_sequence_reaches_a_place_that_has_its_version(world, ask, version):
    how = {"sequence_start": True, "sequence_end": True}
    found = [ask(world, "kept", version, sequence_id=one, **how) for one in range(1, TIMES + 1)]
    assert found == [version] * TIMES


@pytest.mark.parametrize("version", ["1", "2"])
def test_metadata_about_a_version_come_from_a_place_that_has_it(world, version):
    base = f"http://127.0.0.1:{world.http_port}/v2/models/m/versions/{version}"
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{world.grpc_port}") as client:
        for _ in range(TIMES):
            with urllib.request.urlopen(base) as answer:
                assert version in json.load(answer)["versions"]
            assert client.is_model_ready("m", version)


def test_a_version_that_nobody_has_is_not_found(world):
    with pytest.raises(Exception, match="version 3"):
        over_rest(world, "m", "3")


@pytest.mark.parametrize("version", ["", "-1"])
def test_the_newest_version_is_that_of_any_place(world, version):
    asks = [over_the_older_grpc] if version else [over_rest, over_grpc]
    for ask in asks:
        assert {ask(world, "m", version) for _ in range(TIMES)} <= {"1", "2"}


def test_a_stream_reaches_the_version_that_its_metadata_name(world):
    for _ in range(TIMES):
        assert streamed(world, "2", headers={"inferd-model": "m", "inferd-model-version": "2"})


def streamed(world, version, **how):
    """Return whether a request on a stream of its own is answered by that version."""
    found = queue.SimpleQueue()
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{world.grpc_port}") as client:
        client.start_stream(lambda result, error: found.put((result, error)), **how)
        client.async_stream_infer("m", tensors(triton_grpc), version)
        result, error = found.get(timeout=30)
        client.stop_stream()
    assert error is None
    return result.get_response().model_version == version


def test_the_log_says_which_models_differ(world):
    assert re.search(
        r"differ in their newest versions.*: kept \(1 at a; 2 at b\), m \(1 at a; 2 at b\)",
        world.process.said,
    )


def test_the_metrics_say_how_many_models_differ(world):
    with urllib.request.urlopen(f"http://127.0.0.1:{world.metrics_port}/metrics") as answer:
        assert "\ninferd_route_mixed_models 2" in answer.read().decode()
