"""Each call of the client against a server, over both protocols, with both clients."""

import asyncio
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import (
    AsyncClient,
    ClientError,
    InvalidArgument,
    InvalidRequest,
    NotFound,
    ServerError,
)
from inferd.core.metadata import ModelState
from inferd.errors import Code
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

MODEL = Path(__file__).parents[2] / "conformance/repos/v2/m/1/model.onnx"
X = np.arange(4, dtype=np.float32).reshape(1, 4)
ARRAYS = {
    "BOOL": np.array([True, False]),
    "UINT8": np.array([0, 255], np.uint8),
    "UINT16": np.array([0, 65535], np.uint16),
    "UINT32": np.array([0, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 2**64 - 1], np.uint64),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-(2**15), 2**15 - 1], np.int16),
    "INT32": np.array([-(2**31), 2**31 - 1], np.int32),
    "INT64": np.array([-(2**63), 2**63 - 1], np.int64),
    "FP16": np.array([0.5, np.inf], np.float16),
    "FP32": np.array([0.1, np.nan], np.float32),
    "FP64": np.array([0.1, -np.inf], np.float64),
}


def test_an_inference_returns_arrays_by_name(client):
    result = client.infer("m", {"INPUT0": X, "INPUT1": X + 1}, id="seven")
    assert list(result) == ["OUTPUT0", "OUTPUT1"]
    np.testing.assert_array_equal(result["OUTPUT0"], 2 * X + 1)
    np.testing.assert_array_equal(result["OUTPUT1"], np.full((1, 4), -1, np.float32))
    assert (result.model_name, result.model_version, result.id) == ("m", "3", "seven")
    assert result["OUTPUT0"].dtype == np.float32


@pytest.mark.parametrize("datatype", ARRAYS)
def test_each_datatype_comes_back_as_it_was_sent(client, datatype):
    array = ARRAYS[datatype]
    result = client.infer("all", {f"IN_{datatype}": array}, outputs=[f"OUT_{datatype}"])
    back = result[f"OUT_{datatype}"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_strings_and_bytes_come_back_as_bytes(client):
    for given in (["a", b"\x00\xff\x00", ""], np.array(["a", b"\x00\xff\x00", ""], object)):
        result = client.infer("all", {"IN_BYTES": given}, outputs=["OUT_BYTES"])
        assert result["OUT_BYTES"].tolist() == [b"a", b"\x00\xff\x00", b""]
    result = client.infer("all", {"IN_BYTES": "grüße"}, outputs=["OUT_BYTES"])
    assert result.strings("OUT_BYTES") == ["grüße"]
    result = client.infer("all", {"IN_BYTES": np.array(["x", "yz"])}, outputs=["OUT_BYTES"])
    assert result.strings("OUT_BYTES") == ["x", "yz"]


def test_bfloat16_is_given_as_floats_or_as_bits_and_comes_back_as_float32(client):
    result = client.infer("all", {"IN_BF16": [0.5, -2.0]}, outputs=["OUT_BF16"])
    assert result["OUT_BF16"].dtype == np.float32
    assert result["OUT_BF16"].tolist() == [0.5, -2.0]
    bits = Tensor("", DataType.BF16, (1,), np.array([0x3F00], np.uint16))
    result = client.infer("all", {"IN_BF16": bits}, outputs=["OUT_BF16"])
    assert result["OUT_BF16"].tolist() == [0.5]


def test_lists_and_numbers_become_what_the_model_declares(client):
    result = client.infer("m", {"INPUT0": [[1, 2, 3, 4]], "INPUT1": X})
    np.testing.assert_array_equal(result["OUTPUT0"], [[1, 3, 5, 7]])
    result = client.infer("all", {"IN_UINT8": 7}, outputs=["OUT_UINT8"])
    assert result["OUT_UINT8"].tolist() == [7]
    with pytest.raises(InvalidRequest, match=r"IN_UINT8.*does not hold"):
        client.infer("all", {"IN_UINT8": [256]})
    with pytest.raises(InvalidRequest, match=r"IN_INT32.*fraction"):
        client.infer("all", {"IN_INT32": [0.5]})


def test_inputs_and_outputs_that_are_no_mapping_and_no_list_are_refused(client):
    for inputs in ([X, X], X, None):
        with pytest.raises(InvalidRequest, match="inputs are a mapping from their names to arrays"):
            client.infer("m", inputs)
    with pytest.raises(InvalidRequest, match=r"outputs is the text 'OUTPUT0'.*\['OUTPUT0'\]"):
        client.infer("m", {"INPUT0": X, "INPUT1": X}, outputs="OUTPUT0")


@pytest.mark.parametrize("count", [0, 1, 5_000, 400_000, 3_000_000])
def test_tensors_of_all_sizes(client, count):
    array = np.arange(count, dtype=np.float32)
    for _ in range(2):  # over the same connection
        result = client.infer("all", {"IN_FP32": array}, outputs=["OUT_FP32"])
        np.testing.assert_array_equal(result["OUT_FP32"], array)
        assert result["OUT_FP32"].shape == (count,)


def test_arrays_that_are_not_contiguous_or_of_the_other_byte_order(client):
    array = np.arange(16, dtype=np.float32).reshape(4, 4).T[:, 0]
    result = client.infer("all", {"IN_FP32": array}, outputs=["OUT_FP32"])
    np.testing.assert_array_equal(result["OUT_FP32"], array)
    result = client.infer("all", {"IN_INT32": np.array([1, 2], ">i4")}, outputs=["OUT_INT32"])
    assert result["OUT_INT32"].tolist() == [1, 2]


def test_wanted_outputs_a_version_and_classes(client):
    result = client.infer("m", {"INPUT0": X, "INPUT1": X}, outputs=["OUTPUT1"], version="1")
    assert list(result) == ["OUTPUT1"]
    assert result.model_version == "1"
    result = client.infer("m", {"INPUT0": X, "INPUT1": X}, classification=2)
    [[first, second]] = result.classes("OUTPUT0")
    assert (first.score, first.number, second.number, second.label) == (6.0, 3, 2, "bird")


def test_a_model_is_not_asked_about_for_no_classes(kind):
    output = b'{"name":"y","datatype":"FP32","shape":[1],"data":[1.5]}'
    with (
        ScriptedServer(answer(200, b'{"model_name":"m","outputs":[%b]}' % output)) as server,
        kind(server.url, binary=False) as client,
    ):
        assert client.infer("m", {"x": X}, classification=0)["y"].tolist() == [1.5]
        assert len(server.calls) == 1


def test_sequences_and_parameters(client):
    inputs = {"INPUT": np.array([[5]], np.int32)}
    number = 2**63 + 1
    found = [
        client.infer("seq", inputs, sequence_id=number, sequence_start=not at, sequence_end=at == 2)
        for at in range(3)
    ]
    assert [int(one["STARTED"][0, 0]) for one in found] == [1, 0, 0]
    assert {int(one["ID_SEEN"][0, 0]) for one in found} == {number}
    result = client.infer("seq_text", inputs, sequence_id="abc", sequence_start=True)
    assert int(result["STARTED"][0, 0]) == 1
    client.infer("seq_text", inputs, sequence_id="abc", sequence_end=True)
    options = {"parameters": {"mine": "x"}, "priority": 1, "queue_timeout_s": 10}
    assert client.infer("m", {"INPUT0": X, "INPUT1": X}, **options).model_name == "m"
    client.infer("m", {"INPUT0": X, "INPUT1": X}, queue_timeout_s=math.inf)


def test_options_may_be_scalars_of_numpy(client):
    inputs = {"INPUT": np.array([[5]], np.int32)}
    number = np.uint64(2**63 + 2)
    start, end = np.array([True, False])
    found = client.infer("seq", inputs, sequence_id=number, sequence_start=start, sequence_end=end)
    assert int(found["ID_SEEN"][0, 0]) == number
    client.infer("seq", inputs, sequence_id=number, sequence_end=start)
    parameters = {"a": np.int64(1), "b": np.float32(0.5), "c": np.float64(0.5), "d": start}
    options = {"priority": np.int64(1), "queue_timeout_s": np.float32(10), "version": np.int32(1)}
    inputs = {"INPUT0": X, "INPUT1": X}
    client.infer("m", inputs, parameters=parameters, **options, classification=np.int64(1))


def test_an_option_that_is_none_is_not_given(client):
    inputs = {"INPUT0": X, "INPUT1": X}
    names = (
        "outputs version id priority queue_timeout_s sequence_id classification timeout_s headers"
    )
    result = client.infer("m", inputs, **dict.fromkeys(names.split()))
    assert result.model_version == client.infer("m", inputs).model_version
    assert set(result) == {"OUTPUT0", "OUTPUT1"}


def test_a_negative_correlation_id_is_none(client):
    with pytest.raises(InvalidRequest, match="sequence_id is -1, expected at least 0"):
        client.infer("seq", {"INPUT": np.array([[5]], np.int32)}, sequence_id=-1)


def test_errors_have_the_servers_text_and_a_code(client):
    with pytest.raises(NotFound, match="nothing") as found:
        client.infer("nothing", {"x": X})
    assert found.value.code is Code.NOT_FOUND
    assert found.value.reason in ("404", "NOT_FOUND")
    assert found.value.headers
    with pytest.raises(InvalidArgument, match="Please provide all required input"):
        client.infer("m", {"INPUT0": X})
    for value in ([1], b"x", {"a": 1}):
        # Over REST it is the server that refuses what JSON can say.
        with pytest.raises((InvalidRequest, InvalidArgument), match=r"sent|JSON|invalid type"):
            client.infer("m", {"INPUT0": X, "INPUT1": X}, parameters={"p": value})
    with pytest.raises((InvalidRequest, InvalidArgument), match=r"sent|whole number"):
        client.infer("m", {"INPUT0": X, "INPUT1": X}, priority=-1)
    with pytest.raises(InvalidRequest, match="no counterpart"):
        client.infer("m", {"INPUT0": np.array([1j]), "INPUT1": X})
    with pytest.raises(TypeError, match="wrong_name"):
        client.infer("m", {"INPUT0": X, "INPUT1": X}, wrong_name=1)
    assert issubclass(NotFound, ClientError)


def test_health_and_metadata(client):
    assert client.is_live()
    assert client.is_ready()
    assert client.is_ready("m", "1")
    assert not client.is_ready("nothing")
    assert client.server_metadata().name == "inferd"
    metadata = client.metadata("m")
    assert metadata.versions == ["1", "3"]
    assert [one.name for one in metadata.inputs] == ["INPUT0", "INPUT1"]
    assert metadata.inputs[0].datatype is DataType.FP32
    assert metadata.inputs[0].shape == (-1, 4)


def test_the_configuration_is_the_same_over_both_protocols(served, kind):
    with kind(served.http_url) as rest, kind(served.grpc_url) as grpc:
        found = rest.config("m"), grpc.config("m")
    for one in found:
        assert one["max_batch_size"] == 8
        assert one["input"][0]["data_type"] == "TYPE_FP32"
        assert one["input"][0]["dims"] == [4]
    assert found[1].items() <= found[0].items()


def test_statistics_count(client):
    before = client.statistics("m", "3")[0]
    client.infer("m", {"INPUT0": X, "INPUT1": X})
    after = client.statistics("m", "3")[0]
    assert after.inference_count == before.inference_count + 1
    assert {one.name for one in client.statistics()} > {"m", "all"}


def test_models_are_listed_unloaded_and_loaded(client):
    assert {one.name for one in client.models()} > {"m", "all"}
    client.unload("text")
    try:
        rows = {one.name: one.state for one in client.models()}
        assert rows["text"] is ModelState.UNAVAILABLE
        assert "text" not in {one.name for one in client.models(ready=True)}
        with pytest.raises(NotFound):
            client.metadata("text")
    finally:
        client.load("text")
    assert client.is_ready("text")


def test_a_load_may_have_files_and_a_configuration(client):
    config = {"platform": "onnxruntime_onnx", "max_batch_size": 4, "name": "m"}
    client.load("m", config=json.dumps(config), files={"7/model.onnx": MODEL.read_bytes()})
    try:
        assert client.metadata("m").versions == ["7"]
        assert client.config("m")["max_batch_size"] == 4
    finally:
        client.load("m")
    assert client.metadata("m").versions == ["1", "3"]


def test_settings_are_read_and_changed(client):
    assert client.log_settings()["log_verbose_level"] == 0
    try:
        assert client.log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    finally:
        client.log_settings({"log_verbose_level": 0})
    assert client.trace_settings()["trace_rate"] == "1000"
    try:
        assert client.trace_settings(changes={"trace_rate": "5"})["trace_rate"] == "5"
    finally:
        client.trace_settings(changes={"trace_rate": None})
    assert client.trace_settings("m")["trace_level"] == ["OFF"]
    with pytest.raises(InvalidArgument, match="log_verbose_level"):
        client.log_settings({"log_verbose_level": "high"})


def test_a_stream_yields_each_answer(client):
    inputs = {
        "IN": np.array([3, 1, 2], np.int32),
        "DELAY": np.zeros(3, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    for _ in range(2):
        found = list(client.stream("repeat", inputs))
        assert [one["OUT"].tolist() for one in found] == [[3], [1], [2]]
    stream = client.stream("repeat", inputs)
    assert next(stream)["IDX"].tolist() == [0]
    stream.close()
    assert list(client.stream("repeat", {**inputs, "IN": [], "DELAY": []})) == []
    with pytest.raises(ClientError, match="nothing"):
        list(client.stream("nothing", {"x": X}))


def test_what_is_thrown_into_a_stream_comes_out_as_it_is(served):
    inputs = {"IN": [3, 1], "DELAY": [0, 0], "WAIT": [0]}

    async def ask():
        async with AsyncClient(served.grpc_url) as client:
            stream = client.stream("repeat", inputs)
            await anext(stream)
            with pytest.raises(FileNotFoundError):
                await stream.athrow(FileNotFoundError())

    asyncio.run(ask())


def test_json_instead_of_binary_data(kind, served):
    with kind(served.http_url, binary=False) as client:
        for datatype in ("BOOL", "UINT64", "INT64", "FP64", "FP32"):
            array = ARRAYS[datatype]
            result = client.infer("all", {f"IN_{datatype}": array}, outputs=[f"OUT_{datatype}"])
            np.testing.assert_array_equal(result[f"OUT_{datatype}"], array)
        array = np.linspace(0, 1, 100_000, dtype=np.float32)
        result = client.infer("all", {"IN_FP32": array}, outputs=["OUT_FP32"])
        np.testing.assert_array_equal(result["OUT_FP32"], array)


def test_a_closed_client_says_so(client):
    client.is_live()
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.is_live()


@pytest.mark.parametrize("seconds", [math.inf, 1e300])
def test_a_time_limit_may_be_none_at_all(kind, protocol, served, seconds):
    with kind(served.url(protocol), timeout_s=seconds, connect_timeout_s=seconds) as client:
        assert client.is_live()
        inputs = {"INPUT0": X, "INPUT1": X}
        np.testing.assert_array_equal(client.infer("m", inputs)["OUTPUT0"], 2 * X)
        assert len(list(client.stream("m", inputs, timeout_s=seconds))) == 1


def test_a_time_limit_that_is_no_number_is_refused(client):
    inputs = {"INPUT0": X, "INPUT1": X}
    with pytest.raises(InvalidRequest, match="timeout_s is NaN"):
        client.infer("m", inputs, timeout_s=math.nan)
    with pytest.raises(InvalidRequest, match="timeout_s is NaN"):
        next(iter(client.stream("m", inputs, timeout_s=math.nan)))
    for seconds in (math.nan, -1.0):
        with pytest.raises(InvalidRequest, match="queue_timeout_s"):
            client.infer("m", inputs, queue_timeout_s=seconds)
    assert client.is_live()


def test_many_calls_at_a_time_share_few_connections(protocol, served):
    from blocking import Blocking

    with Blocking(served.url(protocol), connections=3) as client:
        calls = [client.client.infer("m", {"INPUT0": X + i, "INPUT1": X}) for i in range(40)]
        found = client.gather(*calls)
    assert [float(one["OUTPUT0"][0, 0]) for one in found] == [float(i) for i in range(40)]


def test_an_array_that_cannot_be_an_output_is_refused(client):
    inputs = {"INPUT0": X, "INPUT1": X}
    with client_block(client, 1 << 20) as memory:

        def ask(array):
            return client.infer("m", inputs, outputs={"OUTPUT0": array})

        with pytest.raises(InvalidRequest, match="'OUTPUT0' is not little-endian"):
            ask(memory.array(4, ">f4"))
        fixed = memory.array(4, np.float32)
        fixed.flags.writeable = False
        with pytest.raises(InvalidRequest, match="'OUTPUT0' is read-only"):
            ask(fixed)
        with pytest.raises(InvalidRequest, match="not in shared memory"):
            ask([0.0] * 4)
        with pytest.raises(InvalidRequest, match="'OUTPUT0' is FP32, the array for it is of int32"):
            ask(memory.array(4, np.int32))
        bytes_ = memory.array(16, np.uint8)
        ask(bytes_)
        np.testing.assert_array_equal(bytes_.view(np.float32), 2 * X[0])


def test_arrays_in_shared_memory_are_not_sent_and_outputs_are_written_there(client):
    with client_block(client, 1 << 20) as memory:
        left, right = memory.array((1, 4), np.float32), memory.array((1, 4), np.float32)
        total = memory.array((2, 4), np.float32)
        left[...], right[...] = X, X + 1
        assert bytes(memory.span_of(right).view) == bytes(right)
        with pytest.raises(InvalidRequest, match="does not lie in this shared memory"):
            memory.span_of(X)
        inputs = {"INPUT0": left, "INPUT1": right}
        result = client.infer("m", inputs, outputs={"OUTPUT0": total})
        np.testing.assert_array_equal(total[:1], 2 * X + 1)
        np.testing.assert_array_equal(result["OUTPUT0"], 2 * X + 1)
        assert np.shares_memory(result["OUTPUT0"], total)
        result = client.infer("m", {"INPUT0": left, "INPUT1": X})
        np.testing.assert_array_equal(result["OUTPUT0"], 2 * X)
        np.testing.assert_array_equal(result["OUTPUT1"], X * 0)
        texts = memory.array(100, np.uint8)
        result = client.infer("all", {"IN_BYTES": ["a", "bcd"]}, outputs={"OUT_BYTES": texts})
        assert result.strings("OUT_BYTES") == ["a", "bcd"]
        with pytest.raises(InvalidRequest, match="not in shared memory"):
            client.infer("m", inputs, outputs={"OUTPUT0": X})
        with pytest.raises(InvalidRequest, match="does not fit"):
            memory.array(1 << 20, np.float64)
        with pytest.raises(InvalidRequest, match="object"):
            memory.array(1, object)
        small = memory.array((1, 2), np.float32)
        with pytest.raises(ClientError):
            client.infer("m", inputs, outputs={"OUTPUT0": small})
        names = regions()
        assert len(names) == 1
    assert regions() == []
    np.testing.assert_array_equal(total[:1], 2 * X + 1)
    np.testing.assert_array_equal(
        client.infer("m", {"INPUT0": left, "INPUT1": X})["OUTPUT0"], 2 * X
    )
    with pytest.raises(ClientError, match="outside"):
        memory.array(1, np.uint8)


def test_shared_memory_is_removed_when_the_server_does_not_take_it(kind):
    with (
        ScriptedServer(answer(501, b"no shared memory")) as server,
        kind(server.url, binary=True) as client,
        pytest.raises(ServerError, match="no shared"),
    ):
        client_block(client, 100).__enter__()
    assert regions() == []


def regions():
    return [one for one in os.listdir("/dev/shm") if one.startswith(f"v2_client_{os.getpid()}")]


def client_block(client, size):
    memory = client.shared_memory(size)
    return memory if hasattr(memory, "__enter__") else client.block(memory)


HALF = "caf\udce9"
"""A name of a file that is no UTF-8, as Python has it."""


def test_texts_that_are_no_utf_8_are_refused_before_they_are_sent(client):
    calls = {
        "infer": lambda: client.infer(HALF, {"x": np.zeros((1, 3), np.float32)}),
        "version": lambda: client.infer("x", {"x": np.zeros(1)}, version=HALF),
        "id": lambda: client.infer("x", {"x": np.zeros(1)}, id=HALF),
        "outputs": lambda: client.infer("x", {"x": np.zeros(1)}, outputs=[HALF]),
        "metadata": lambda: client.metadata(HALF),
        "config": lambda: client.config("x", HALF),
        "ready": lambda: client.is_ready(HALF),
        "statistics": lambda: client.statistics(HALF),
        "load": lambda: client.load(HALF),
        "unload": lambda: client.unload(HALF, dependents=True),
        "trace": lambda: client.trace_settings(HALF),
    }
    for call in calls.values():
        with pytest.raises(InvalidRequest, match=r"no text that UTF-8 has|str is not valid UTF-8"):
            call()
