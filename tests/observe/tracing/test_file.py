import json
import logging
import resource
import subprocess
import sys

import numpy as np
import pytest

from inferd.config.options.trace import TraceSettings
from inferd.observe.tracing.file import SharedTraceFile, TraceFile, TraceWriter, encode_trace
from inferd.observe.tracing.trace import Trace
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

BOTH = ("TIMESTAMPS", "TENSORS")


def trace_of(number=1, path=None, frequency=0, **fields):
    settings = TraceSettings(levels=BOTH, file=path, log_frequency=frequency)
    trace = Trace(number, "m", settings)
    for name, value in fields.items():
        setattr(trace, name, value)
    return trace


def read_ids(path):
    return [one["id"] for one in json.loads(path.read_text()) if "model_name" in one]


# --- the form ---


def test_a_trace_is_its_model_then_its_stamps_in_order_then_its_tensors():
    trace = trace_of(7, version="3", request_id="q")
    trace.stamp("B", 20)
    trace.stamp("A", 10)
    array = np.array([[1, 2], [3, 4]], np.int32)
    trace.note_tensors("TENSOR_QUEUE_INPUT", [Tensor.from_numpy("X", array, DataType.INT32)])
    tensor = {"name": "X", "data": "1,2,3,4", "shape": "2,2", "dtype": "INT32"}
    assert json.loads(b"[%b]" % encode_trace(trace)) == [
        {"id": 7, "model_name": "m", "model_version": 3, "request_id": "q"},
        {"id": 7, "timestamps": [{"name": "A", "ns": 10}]},
        {"id": 7, "timestamps": [{"name": "B", "ns": 20}]},
        {"id": 7, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor},
    ]


def test_children_follow_their_parent_and_name_it():
    trace = trace_of(7)
    inner = trace.child("a").child("b")
    trace.child("c")
    inner.stamp("A", 10)
    found = json.loads(b"[%b]" % encode_trace(trace))
    assert [(one["id"], one.get("parent_id")) for one in found if "model_name" in one] == [
        (7, None),
        (8, 7),
        (9, 8),
        (10, 7),
    ]
    assert {"id": 9, "timestamps": [{"name": "A", "ns": 10}]} in found


def test_without_an_answer_the_version_is_none():
    assert json.loads(encode_trace(trace_of()))["model_version"] == -1


def test_text_that_is_no_unicode_and_text_that_is_json_are_carried():
    hostile = 'a"},{"id":9,\udcff\0'
    assert json.loads(encode_trace(trace_of(request_id=hostile)))["request_id"] == hostile


@pytest.mark.parametrize(
    ("datatype", "values", "text"),
    [
        (DataType.BOOL, [True, False], "1,0"),
        (DataType.UINT64, [2**64 - 1], "18446744073709551615"),
        (DataType.INT8, [-128, 127], "-128,127"),
        (DataType.FP64, [0.1, 123456789.125], "0.1,123456789.125"),
        (DataType.FP32, [0.1, 2], "0.1,2.0"),
        (DataType.FP32, [np.nan, np.inf, -np.inf], "nan,inf,-inf"),
        (DataType.FP16, [0.5, 65504], "0.5,65504.0"),
        (DataType.BF16, [0x3F80, 0x4000], "1.0,2.0"),
        (DataType.BYTES, [b"a,b", "ü".encode(), b"\xff", b""], "a,b,ü,\\xff,"),
        (DataType.FP32, [], ""),
    ],
)
def test_elements_are_separated_by_commas(datatype, values, text):
    array = np.array(values, object if datatype is DataType.BYTES else datatype.numpy)
    trace = trace_of()
    trace.note_tensors("X", [Tensor.from_numpy("T", array, datatype)])
    _, reported = json.loads(b"[%b]" % encode_trace(trace))
    assert reported["tensor"]["data"] == text
    assert reported["tensor"]["dtype"] == datatype.value


def test_bytes_with_wrong_lengths_have_no_elements_to_tell():
    trace = trace_of()
    trace.note_tensors("X", [Tensor("T", DataType.BYTES, (1,), b"\xff\0\0\0a")])
    assert json.loads(b"[%b]" % encode_trace(trace))[1]["tensor"]["data"] == ""


def test_a_scalar_and_a_tensor_too_large_to_be_retained():
    trace = trace_of()
    scalar = Tensor("S", DataType.INT32, (), np.int32(5).tobytes())
    large = Tensor("L", DataType.UINT8, (2**20 + 1,), bytes(2**20 + 1))
    trace.note_tensors("X", [scalar, large])
    _, *reported = json.loads(b"[%b]" % encode_trace(trace))
    assert [(one["tensor"]["data"], one["tensor"]["shape"]) for one in reported] == [
        ("5", ""),
        ("", "1048577"),
    ]


# --- the files ---


def test_a_file_is_a_whole_array_after_every_write(tmp_path):
    path = tmp_path / "trace.json"
    file = TraceFile(path, is_named_by_client=False)
    for upto in range(1, 4):
        file.write([trace_of(upto, path)])
        assert read_ids(path) == list(range(1, upto + 1))


def test_what_an_earlier_server_wrote_is_replaced(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("[old]" * 1000)
    TraceFile(path, is_named_by_client=False).write([trace_of(1, path)])
    assert read_ids(path) == [1]


def test_a_file_moved_away_begins_anew(tmp_path):
    path = tmp_path / "trace.json"
    file = TraceFile(path, is_named_by_client=False)
    file.write([trace_of(1, path)])
    path.rename(tmp_path / "moved")
    file.write([trace_of(2, path)])
    assert (read_ids(tmp_path / "moved"), read_ids(path)) == ([1], [2])


def test_numbered_files_hold_as_many_traces_as_was_said(tmp_path):
    path = tmp_path / "trace.json"
    file = TraceFile(path, is_named_by_client=False)
    file.write([trace_of(number, path, frequency=2) for number in (1, 2, 3)])
    file.write([trace_of(number, path, frequency=2) for number in (4, 5)])
    assert [read_ids(tmp_path / f"trace.json.{i}") for i in range(3)] == [[1, 2], [3, 4], [5]]
    assert not path.exists()


def test_a_smaller_number_of_traces_closes_the_present_file(tmp_path):
    path = tmp_path / "t"
    file = TraceFile(path, is_named_by_client=False)
    file.write([trace_of(number, path, frequency=5) for number in (1, 2, 3)])
    file.write([trace_of(number, path, frequency=2) for number in (4, 5)])
    assert read_ids(tmp_path / "t.0") == [1, 2, 3, 4]
    assert read_ids(tmp_path / "t.1") == [5]


def test_a_link_in_a_clients_name_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="link"):
        TraceFile(tmp_path / "link", is_named_by_client=True).write([trace_of()])
    TraceFile(tmp_path / "link", is_named_by_client=False).write([trace_of()])
    assert read_ids(tmp_path / "victim") == [1]


def test_a_file_a_client_names_is_never_written_over(tmp_path):
    (tmp_path / "t").write_text("precious")
    (tmp_path / "t.1").write_text("precious")
    with pytest.raises(FileExistsError):
        TraceFile(tmp_path / "t", is_named_by_client=True).write([trace_of()])
    numbered = TraceFile(tmp_path / "t", is_named_by_client=True)
    with pytest.raises(FileExistsError):
        numbered.write([trace_of(number, frequency=1) for number in (1, 2)])
    assert read_ids(tmp_path / "t.0") == [1]
    assert [(tmp_path / name).read_text() for name in ("t", "t.1")] == ["precious"] * 2


@pytest.mark.slow
def test_a_full_disk_leaves_the_file_whole(tmp_path):
    path = tmp_path / "trace.json"
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from inferd.config.options.trace import TraceSettings\n"
        "from inferd.observe.tracing.trace import Trace\n"
        "from inferd.observe.tracing.file import TraceFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "file = TraceFile(Path(sys.argv[1]), is_named_by_client=False)\n"
        "for number in range(1, 100):\n"
        "    file.write([Trace(number, 'm', TraceSettings())])\n"
    )
    done = _run(script, path)
    assert "OSError" in done.stderr
    assert read_ids(path)[:2] == [1, 2]
    assert path.stat().st_size <= 1000


def _run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# --- the writer ---


@pytest.mark.parametrize("frequency", [0, 3])
@pytest.mark.parametrize("by_client", [False, True])
@pytest.mark.parametrize("kind", [TraceFile, SharedTraceFile])
def test_a_disk_that_is_full_at_first_costs_no_later_trace(tmp_path, kind, by_client, frequency):
    path = tmp_path / "t"
    file = kind(path, is_named_by_client=by_client)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file.write([trace_of(1, path, frequency)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for number in (2, 3):
        file.write([trace_of(number, path, frequency)])
    [written] = tmp_path.iterdir()
    assert read_ids(written) == [2, 3]


def test_the_writer_writes_each_trace_to_its_file_and_all_before_it_ends(tmp_path):
    writer = TraceWriter(tmp_path / "a")
    writer.open()
    for number in range(1, 301):
        writer.take(trace_of(number, tmp_path / "ab"[number % 2]))
    writer.close(30)
    assert read_ids(tmp_path / "a") == list(range(2, 301, 2))
    assert read_ids(tmp_path / "b") == list(range(1, 301, 2))


def test_what_cannot_be_written_is_said_once_and_the_rest_goes_on(tmp_path, caplog):
    writer = TraceWriter(None)
    with caplog.at_level(logging.WARNING, "inferd.trace"):
        for number in range(5):
            writer.take(trace_of(number, tmp_path / "no" / "folder"))
        writer.take(trace_of(9, tmp_path / "good"))
        writer.close(30)
    assert len(caplog.messages) == 1
    assert "lost, because their file cannot be written: No such file" in caplog.messages[0]
    assert str(tmp_path) not in caplog.text
    assert read_ids(tmp_path / "good") == [9]


# --- several processes ---


def test_processes_write_into_one_file_at_the_same_time(tmp_path):
    path = tmp_path / "traces"
    writers = [TraceWriter(path, is_shared=True) for _ in range(3)]
    for one in writers:
        one.open()
    for id in range(300):
        writers[id % 3].take(trace_of(id, path))
    for one in writers:
        one.close(30)
    assert sorted(read_ids(path)) == list(range(300))


@pytest.mark.parametrize("by_client", [False, True])
def test_processes_have_numbered_files_of_their_own(tmp_path, by_client):
    """Two write in turns; the first is replaced by a third, and ends while that writes."""
    path = tmp_path / "traces"
    (tmp_path / "traces.1").write_text("[]")  # as from another day

    def write(file, *ids):
        file.write([trace_of(id, path, frequency=2) for id in ids])

    first, second, third = (SharedTraceFile(path, is_named_by_client=by_client) for _ in range(3))
    write(first, 0, 1, 2)
    write(second, 10)
    write(third, 20)
    write(first, 3, 4)
    write(second, 11, 12)
    write(third, 21)
    found = {one.name: read_ids(one) for one in tmp_path.iterdir()}
    assert found == {
        "traces.0": [0, 1],
        "traces.1": [],
        "traces.2": [2, 3],
        "traces.3": [10, 11],
        "traces.4": [20, 21],
        "traces.5": [4],
        "traces.6": [12],
    }
