"""Events as rows of Parquet files, as another reader finds them."""

import resource
import sys

import pyarrow.parquet
import pytest

from inferd.errors import InvalidConfig
from inferd.observe.payloads import files
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventTable, PartLost


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


@pytest.fixture
def full_disk():
    """full_disk(size) lets no file grow beyond `size` bytes; full_disk() lets them grow again."""

    def limit(size=resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield limit
    limit(soft)


def test_a_full_disk_costs_what_is_in_the_file_and_none_of_what_comes_later(
    path, full_disk, monkeypatch
):
    monkeypatch.setattr(files, "_GROUP_BYTES", 3000)
    table = EventTable(path, 1 << 30, 2)
    table.open()
    write(table, *"123", size=1000)
    full_disk(path.with_name("log.parquet.part").stat().st_size + 10)
    with pytest.raises(PartLost, match=r"log.parquet.part is lost, with 6 payloads: "):
        write(table, "4", "5", "6", size=1000)
    full_disk()
    write(table, *"789", size=1000)
    table.close()
    assert ids_in(path) == ["7", "8", "9"]
    assert len(list(path.parent.iterdir())) == 1


def test_a_file_that_cannot_be_ended_is_given_up(path, full_disk):
    table = EventTable(path, 1 << 30, 2)
    table.open()
    write(table, "1", size=1000)
    full_disk(100)
    with pytest.raises(PartLost):
        table.close()
    full_disk()
    write(table, "2")
    table.close()
    assert ids_in(path) == ["2"]


def test_without_events_there_is_no_file(path):
    table = EventTable(path, 1000, 2)
    table.open()
    table.close()
    assert list(path.parent.iterdir()) == []


def test_without_pyarrow_it_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidConfig, match="Parquet needs pyarrow: pip install"):
        EventTable(path, 1000, 2).open()
