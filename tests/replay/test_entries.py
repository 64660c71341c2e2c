"""Reading payload logs: requests with their answers, and lines that are none."""

import base64
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import REQUEST, RESPONSE, PayloadEvent
from inferd.observe.payloads.files import EventTable
from inferd.replay.entries import LoggedBody, PayloadReader


@pytest.fixture
def log(tmp_path):
    """log(event or line, ..., name=file) writes a log and returns its path."""

    def write(*events, name="log.jsonl"):
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in events]
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


def event(id, kind=REQUEST, **more):
    return {"id": id, "type": kind, "modelname": "m"} | (more or {"data": {"a": 1}})


def test_requests_have_their_answers_wherever_these_are(log):
    paths = [
        log(event("1"), event("2"), event("2", RESPONSE, data=[2]), name="a"),
        log(event("1", RESPONSE, data=[1]), event("3"), event("1", RESPONSE, data=[0]), name="b"),
    ]
    reader = PayloadReader(paths)
    found = list(reader.requests())
    assert [(one.where, one.id) for one in found] == [
        (f"{paths[0]}:1", "1"),
        (f"{paths[0]}:2", "2"),
        (f"{paths[1]}:2", "3"),
    ]
    assert [[body.data for body in one.answers] for one in found] == [
        [b"[1]", b"[0]"],
        [b"[2]"],
        [],
    ]
    assert len(reader) == 3 and reader.faults == []


def test_json_and_binary_bodies_are_as_they_were_sent(log):
    data = b'{"x":1}\x00\xff'
    binary = event(
        "1",
        data_base64=base64.b64encode(data).decode(),
        inferenceheadercontentlength="7",
        modelversion="3",
    )
    cut = event("2", data_base64="e30=", truncated="true", fullsize="99")
    one, other = PayloadReader([log(binary, cut)]).requests()
    assert one.body == LoggedBody(data, 7, False) and one.version == "3"
    assert other.body == LoggedBody(b"{}", None, True)


def test_other_events_do_not_matter(log):
    reader = PayloadReader([log(event("1", "org.example.other"), event("2"))])
    assert [one.id for one in reader.requests()] == ["2"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"nonsense", "this is no line of JSON"),
        (b'{"id": "1", "type": "org.kube', "this is no line of JSON"),
        (b"[]", "this is no event of a payload log, it has no type"),
        (b'{"id": "1"}', "this is no event of a payload log, it has no type"),
        (b'{"type": "%b"}' % REQUEST.encode(), "the event has no id"),
        (
            b'{"type": "%b", "id": "1", "data_base64": "="}' % REQUEST.encode(),
            "the data of the event cannot be read",
        ),
        (
            b'{"type": "%b", "id": "1", "data": {}, "inferenceheadercontentlength": "x"}'
            % REQUEST.encode(),
            "the data of the event cannot be read",
        ),
        (b"\xff\xfe", "this is no line of JSON"),
        (b"[" * 100_000, "this is no line of JSON"),
    ],
)
def test_a_line_that_is_no_event_is_told_and_the_others_are_read(log, line, fault):
    path = log(line, event("2"))
    reader = PayloadReader([path])
    assert [one.id for one in reader.requests()] == ["2"]
    [found] = reader.faults
    assert found.startswith(f"{path}:1: {fault}")


def test_tables_are_read_as_lines_are(tmp_path):
    path = tmp_path / "log.parquet"
    table = EventTable(path, 5_000, 3)
    table.open()
    data = b'{"x":1}\x00\xff'
    for at in range(5):
        for kind in (REQUEST, RESPONSE):
            body = data + bytes([at, kind == RESPONSE]) * 400
            one = PayloadEvent(
                str(at), kind, 10.0 + at, "http", "m", "3", body[:-at] if at else body, 7, len(body)
            )
            table.write(one, {"source": "s"} | one.attributes())
    table.close()
    paths = [path.with_name("log.parquet.1"), path]
    assert sorted(tmp_path.iterdir(), reverse=True) == paths
    reader = PayloadReader(paths)
    found = list(reader.requests())
    assert [(one.id, one.seconds, one.version) for one in found] == [
        (str(at), 10.0 + at, "3") for at in range(5)
    ]
    assert [one.body.is_cut for one in found] == [False, True, True, True, True]
    assert found[0].body == LoggedBody(data + bytes([0, 0]) * 400, 7, False)
    assert [[body.data[9:11] for body in one.answers] for one in found] == [
        [bytes([at, 1])] for at in range(5)
    ]
    assert found[0].where == f"{paths[0]}:1" and not reader.faults


def test_rows_that_are_no_events_are_told_and_the_others_are_read(tmp_path):
    path = tmp_path / "log.parquet"
    ids = ["1", None, "3"]
    types = [None, REQUEST, REQUEST]
    data = [b"{}"] * 3
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "type": types, "data": data}), path)
    reader = PayloadReader([path])
    assert [one.id for one in reader.requests()] == ["3"]
    assert reader.faults == [
        f"{path}:1: this is no event of a payload log, it has no type",
        f"{path}:2: the event has no id",
    ]


def test_a_damaged_table_is_told(tmp_path):
    path = tmp_path / "log.parquet"
    rows = pyarrow.table({"id": ["1"], "type": [REQUEST], "data": [bytes(range(256)) * 9]})
    pyarrow.parquet.write_table(rows, path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[30:300] = bytes(270)
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=f"cannot read {path}: "):
        PayloadReader([path])


@pytest.mark.parametrize("name", ["log.parquet", "log.parquet.3"])
def test_a_file_that_is_no_table_is_told(tmp_path, name):
    path = tmp_path / name
    for content in (b"", b'{"id": "1"}\n', b"PAR1" * 4):
        path.write_bytes(content)
        with pytest.raises(InvalidConfig, match=f"cannot read {path}: .*Parquet"):
            PayloadReader([path])


def test_an_empty_log_has_no_requests(log):
    reader = PayloadReader([log()])
    assert list(reader.requests()) == [] and len(reader) == 0


@pytest.mark.parametrize("name", ["nothing", "."])
def test_a_file_that_cannot_be_read_is_told(tmp_path, name):
    with pytest.raises(InvalidConfig, match=f"cannot read {tmp_path / name}: "):
        PayloadReader([tmp_path / name])


@pytest.mark.parametrize("name", ["modelname", "modelversion"])
@pytest.mark.parametrize("value", [1, ["m"], "\ud800"])
def test_names_that_are_no_text_are_told_by_their_place(log, name, value):
    path = log(event("1", data={}, **{name: value}), event("2"))
    reader = PayloadReader([path])
    assert [one.id for one in reader.requests()] == ["2"]
    assert reader.faults == [f"{path}:1: {name} of the event is no text that UTF-8 has"]


def test_a_version_that_is_null_is_none(log):
    [request] = PayloadReader([log(event("1", data={}, modelversion=None))]).requests()
    assert request.version == ""


def test_a_pipe_is_refused_since_it_cannot_be_read_twice():
    with pytest.raises(InvalidConfig, match="/dev/null is a pipe or a device"):
        PayloadReader([Path("/dev/null")])
