"""The Python client of the TensorRT Inference Server 1.11, as NVIDIA built it in February 2020."""

import os
import queue

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorrtserver")

SEQUENCE_START, SEQUENCE_END = 1, 2  # InferRequestHeader.Flag


@pytest.fixture
def formats(api):
    return api.InferContext.ResultFormat


def test_the_server_is_live_and_ready(api, place):
    health = api.ServerHealthContext(*place)
    assert health.is_live()
    assert health.is_ready()


def test_the_status_tells_each_model_and_its_configuration(api, place):
    status = api.ServerStatusContext(*place, "rows").get_server_status()
    model = status.model_status["rows"]
    assert (model.config.name, model.config.max_batch_size) == ("rows", 64)
    assert [list(one.dims) for one in model.config.input] == [[3]]
    assert "rows" in api.ServerStatusContext(*place).get_server_status().model_status


@pytest.mark.parametrize("batch", [1, 8])
def test_a_batch_comes_back_row_by_row(context, formats, rows, batch):
    answer = context("rows").run({"INPUT0": rows[:batch]}, {"OUTPUT0": formats.RAW}, batch)
    np.testing.assert_array_equal(answer["OUTPUT0"], rows[:batch])


def test_classes_come_with_their_labels(context, formats, rows):
    wanted = {"OUTPUT0": (formats.CLASS, 2)}
    answer = context("rows").run({"INPUT0": rows[:2]}, wanted, 2)
    assert answer["OUTPUT0"] == [
        [(2, 2.0, "blue"), (1, 1.0, "green")],
        [(2, 5.0, "blue"), (1, 4.0, "green")],
    ]


@pytest.mark.parametrize("datatype", ["FP64", "INT8", "UINT16", "INT64", "BOOL", "FP16"])
def test_arrays_of_any_shape_come_back(context, formats, datatype):
    kind = {"FP64": "f8", "INT8": "i1", "UINT16": "u2", "INT64": "i8", "BOOL": "?", "FP16": "f2"}
    array = np.array([[0, 1, 1], [1, 0, 1]], kind[datatype])
    answer = context(f"echo_{datatype}").run({"INPUT0": [array]}, {"OUTPUT0": formats.RAW})
    [output] = answer["OUTPUT0"]
    assert output.dtype == array.dtype
    np.testing.assert_array_equal(output, array)


def test_strings_come_back(context, formats):
    words = [["", "a"], ["日本", "x" * 300]]
    given = {"INPUT0": [np.array(words, object)]}
    [output] = context("echo_BYTES").run(given, {"OUTPUT0": formats.RAW})["OUTPUT0"]
    assert [[word.decode() for word in line] for line in output] == words


def test_many_requests_under_way_get_their_own_answers(context, formats, rows):
    connection, done = context("rows"), queue.Queue()

    def finished(asked, number):
        done.put(asked.get_async_run_results(number))

    for row in rows:
        connection.async_run(finished, {"INPUT0": [row]}, {"OUTPUT0": formats.RAW})
    answers = [done.get(timeout=30)["OUTPUT0"][0].tolist() for _ in rows]
    assert sorted(answers) == [row.tolist() for row in rows]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_sequence_reaches_the_model_as_one(api, two_ports, formats, streaming):
    place = two_ports.grpc, api.ProtocolType.GRPC
    asked = api.InferContext(*place, "seq", -1, correlation_id=4711, streaming=streaming)
    names, seen = ("OUTPUT", "STARTED", "ID_SEEN"), []
    for value, flags in [(7, SEQUENCE_START), (8, 0), (9, SEQUENCE_END)]:
        given = {"INPUT": [np.array([value], np.int32)]}
        answer = asked.run(given, dict.fromkeys(names, formats.RAW), flags=flags)
        seen.append([int(answer[name][0][0]) for name in names])
    asked.close()
    assert seen == [[7, 1, 4711], [8, 0, 4711], [9, 0, 4711]]


def test_outputs_are_written_to_shared_memory(api, place, context, formats, rows):
    from tensorrtserver import shared_memory

    key = f"/old_client_{os.getpid()}"
    region = shared_memory.create_shared_memory_region("old_client", key, 12)
    control = api.SharedMemoryControlContext(*place)
    try:
        control.register(region)
        [known] = control.get_shared_memory_status().shared_memory_region
        assert (known.name, known.byte_size) == ("old_client", 12)
        outputs = {"OUTPUT0": (formats.RAW, region)}
        [output] = context("rows").run({"INPUT0": [rows[5]]}, outputs)["OUTPUT0"]
        np.testing.assert_array_equal(output, rows[5])
    finally:
        control.unregister_all()
        shared_memory.destroy_shared_memory_region(region)


def test_the_repository_lists_its_models(api, place):
    index = api.ModelRepositoryContext(*place).get_model_repository_index()
    assert {"rows", "digits", "seq"} <= {one.name for one in index.models}


def test_loading_is_refused_with_the_reason(api, place):
    with pytest.raises(api.InferenceServerException, match="model-control-mode"):
        api.ModelControlContext(*place).load("rows")


def test_an_unknown_model_is_named(api, place):
    with pytest.raises(api.InferenceServerException, match="nobody"):
        api.InferContext(*place, "nobody", -1)


def test_a_tensor_too_short_is_refused_and_the_next_request_answered(api, context, formats, rows):
    asked, outputs = context("echo_FP32"), {"OUTPUT0": formats.RAW}
    with pytest.raises(api.InferenceServerException, match="INPUT0"):
        asked.run({"INPUT0": [np.zeros(3, np.float32)]}, outputs)  # two dimensions are wanted
    [output] = asked.run({"INPUT0": [rows[0].reshape(1, 3)]}, outputs)["OUTPUT0"]
    np.testing.assert_array_equal(output, [rows[0]])


def test_what_the_client_counted_the_server_counted(api, place, context, formats, rows):
    def count():
        status = api.ServerStatusContext(*place, "rows").get_server_status()
        return status.model_status["rows"].version_status[1].model_inference_count

    before = count()
    context("rows").run({"INPUT0": rows}, {"OUTPUT0": formats.RAW}, 8)
    assert count() - before == 8
