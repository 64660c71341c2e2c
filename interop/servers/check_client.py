"""What inferd.client must get from any server with the models simple and identity_fp32.

python interop/servers/run.py    starts the servers and runs this against each
"""

import asyncio
import os
import time

import numpy as np
import pytest

from inferd.client import AsyncClient, Client, ClientError, NotFound, ServerError
from inferd.tensor.dtype import DataType

KIND = os.environ["SERVER_KIND"]
URLS = {"rest": os.environ["SERVER_URL"], "grpc": os.environ["SERVER_GRPC"]}
HAS_TRITONS = KIND in ("inferd", "triton")
A = np.arange(16, dtype=np.int32).reshape(1, 16)


@pytest.fixture(params=URLS)
def client(request):
    with Client(URLS[request.param], timeout_s=30) as made:
        yield made


def check_simple(result):
    np.testing.assert_array_equal(result["OUTPUT0"], 2 * A + 1)
    np.testing.assert_array_equal(result["OUTPUT1"], np.full((1, 16), -1))
    assert result["OUTPUT0"].dtype == np.int32
    assert result.model_name == "simple"


def settled_count(client):
    """The inferences of simple. Triton counts one after its answer is sent, at times much later."""
    deadline = time.monotonic() + 10
    before, count = -1, client.statistics("simple")[0].inference_count
    while count != before:
        assert time.monotonic() < deadline, "the count of an idle server changes"
        time.sleep(0.3)
        before, count = count, client.statistics("simple")[0].inference_count
    return count


def test_health_and_metadata_of_the_server(client):
    assert client.is_live()
    assert client.is_ready()
    assert client.is_ready("simple")
    metadata = client.server_metadata()
    assert isinstance(metadata.extensions, list)
    assert ("binary_tensor_data" in metadata.extensions) == HAS_TRITONS


def test_an_inference(client):
    check_simple(client.infer("simple", {"INPUT0": A, "INPUT1": A + 1}))
    check_simple(client.infer("simple", {"INPUT0": A, "INPUT1": A + 1}, id="seven"))


def test_binary_data_or_json_as_the_server_can():
    for binary in (True, False) if KIND != "mlserver" else (False,):
        with Client(URLS["rest"], binary=binary) as client:
            check_simple(client.infer("simple", {"INPUT0": A, "INPUT1": A + 1}))


@pytest.mark.parametrize("count", [1, 1000, 150_000])
def test_large_and_small(client, count):
    array = np.linspace(-1, 1, count, dtype=np.float32)
    for _ in range(3):
        result = client.infer("identity_fp32", {"INPUT0": array})
        np.testing.assert_array_equal(result["OUTPUT0"].ravel(), array)


@pytest.mark.parametrize("url", URLS)
def test_many_at_a_time(url):
    async def ask():
        async with AsyncClient(URLS[url], connections=8) as client:
            arrays = [np.full(50, i, np.float32) for i in range(50)]
            calls = [client.infer("identity_fp32", {"INPUT0": one}) for one in arrays]
            for array, result in zip(arrays, await asyncio.gather(*calls), strict=True):
                np.testing.assert_array_equal(result["OUTPUT0"].ravel(), array)

    asyncio.run(ask())


def test_errors_are_the_servers(client):
    with pytest.raises(ServerError) as found:
        client.infer("nothing", {"INPUT0": A})
    assert "nothing" in found.value.message
    if KIND != "kserve" or client.url.startswith("http"):  # its gRPC says UNKNOWN or INTERNAL
        assert isinstance(found.value, NotFound)
    assert not client.is_ready("nothing")
    with pytest.raises(ServerError) as found:
        client.infer("simple", {"INPUT0": A})
    assert found.value.message


def test_models(client):
    if KIND == "kserve":
        with pytest.raises(ClientError):
            client.models()
        return
    assert {one.name for one in client.models()} >= {"simple", "identity_fp32"}


def test_metadata_of_a_model(client):
    metadata = client.metadata("simple")
    assert metadata.name == "simple"
    if HAS_TRITONS:
        assert {one.name: one.shape for one in metadata.inputs} == {
            "INPUT0": (-1, 16),
            "INPUT1": (-1, 16),
        }
        assert metadata.outputs[0].datatype is DataType.INT32
        check_simple(client.infer("simple", {"INPUT0": A.tolist(), "INPUT1": (A + 1).tolist()}))


def test_extensions_of_triton(client):
    if not HAS_TRITONS:
        with pytest.raises(ServerError):
            client.statistics("simple")
        return
    assert client.config("simple")["max_batch_size"] == 8
    before = settled_count(client)
    client.infer("simple", {"INPUT0": A, "INPUT1": A})
    assert settled_count(client) == before + 1
    assert client.trace_settings()["trace_rate"]
    assert client.log_settings()["log_info"] is True
    result = client.infer("simple", {"INPUT0": A, "INPUT1": A}, outputs=["OUTPUT1"], id="x")
    assert list(result) == ["OUTPUT1"]
    assert result.id == "x"


def test_shared_memory(client):
    if not HAS_TRITONS:
        with pytest.raises(ServerError), client.shared_memory(100):
            pass
        return
    with client.shared_memory(1 << 16) as memory:
        array, back = memory.array(1000, np.float32), memory.array(1000, np.float32)
        array[:] = np.arange(1000)
        result = client.infer("identity_fp32", {"INPUT0": array}, outputs={"OUTPUT0": back})
        np.testing.assert_array_equal(back, array)
        np.testing.assert_array_equal(result["OUTPUT0"], array)


def test_a_stream(client):
    if client.url.startswith("http") and KIND not in ("inferd", "mlserver"):
        with pytest.raises(ServerError):
            list(client.stream("identity_fp32", {"INPUT0": np.zeros(3, np.float32)}))
        return
    if KIND in ("kserve", "mlserver"):  # they have it for models that are made for it alone
        with pytest.raises(ClientError):
            list(client.stream("nothing", {"INPUT0": np.zeros(3, np.float32)}))
        return
    [result] = client.stream("identity_fp32", {"INPUT0": np.arange(3, dtype=np.float32)})
    assert result["OUTPUT0"].tolist() == [0, 1, 2]
