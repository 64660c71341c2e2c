"""Events as rows of Parquet files, as another reader finds them."""

import sys

import pyarrow.parquet
import pytest

from inferd.errors import InvalidConfig
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventTable


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.parquet"


def write(table, *ids, size=10):
    for one in ids:
        event = PayloadEvent(one, REQUEST, 0.0, "grpc", "m", "", b"x" * size, 3, size)
        table.write(event, {"source": "s"} | event.attributes())


def ids_in(path):
    return pyarrow.parquet.read_table(path).column("id").to_pylist()


def test_an_event_is_a_row(path):
    table = EventTable(path, 1 << 20, 3)
    table.open()
    write(table, "1", "2")
    table.close()
    first, _ = pyarrow.parquet.read_table(path).to_pylist()
    assert first["data"] == b"x" * 10 and first["inferenceheadercontentlength"] == "3"
    assert (first["id"], first["type"], first["source"]) == ("1", REQUEST, "s")
    assert (first["modelname"], first["protocol"]) == ("m", "grpc")
    assert first["modelversion"] is None and first["truncated"] is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_file_is_complete_and_the_oldest_goes(path):
    table = EventTable(path, 2000, 2)
    table.open()
    write(table, *"12345", size=1000)
    assert ids_in(path) == ["3", "4"] and ids_in(path.with_name("log.parquet.1")) == ["1", "2"]
    table.close()
    assert ids_in(path) == ["5"] and ids_in(path.with_name("log.parquet.1")) == ["3", "4"]
    assert len(list(path.parent.iterdir())) == 2


def test_many_rows_are_written_before_the_file_is_full(path):
    table = EventTable(path, 1 << 30, 2)
    table.open()
    write(table, *"12", size=5 << 20)
    assert path.with_name("log.parquet.part").stat().st_size > 0 and not table._rows
    table.close()
    assert ids_in(path) == ["1", "2"]


def test_without_events_there_is_no_file(path):
    table = EventTable(path, 1000, 2)
    table.open()
    table.close()
    assert list(path.parent.iterdir()) == []


def test_without_pyarrow_it_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidConfig, match="Parquet needs pyarrow: pip install"):
        EventTable(path, 1000, 2).open()
