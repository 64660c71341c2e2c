"""The record of what runs: real files, read as the next process would."""

import os
import threading

import pytest

from inferd.core.request import InferRequest
from inferd.observe.crash.mark import ID_CHARS, shown_ids
from inferd.observe.crash.record import (
    MARK_COUNT,
    SIZE,
    CrashRecord,
    MarkedRun,
    open_private,
    read_record,
)


@pytest.fixture
def file(tmp_path):
    descriptor = open_private(tmp_path / "a.record")
    yield descriptor
    os.close(descriptor)


def run(mark, *ids):
    mark.note.value = shown_ids([InferRequest("m", id=one) for one in ids])


def test_what_runs_is_read_by_the_next(file):
    record = CrashRecord(file)
    run(record.claim("idle", "1"))
    record.release(record.claim("m", "1"))
    first, second = record.claim("été", "12"), record.claim("m", "1", 77, is_load=True)
    record.claim("never", "1")
    run(first, "a", "b")
    run(second)
    last = read_record(file)
    assert set(last.runs) == {
        MarkedRun("idle", "1", "", False, threading.get_ident()),
        MarkedRun("été", "12", "a, b", False, threading.get_ident()),
        MarkedRun("m", "1", "", True, 77),
    }
    assert (last.is_stopping, last.is_same_boot) == (False, True)
    assert last.started_s <= last.seen_s
    first.note.value = first.idle
    record.note_stopping()
    record.beat()
    assert len(read_record(file).runs) == 2
    assert read_record(file).is_stopping


def test_a_mark_is_used_again_and_says_whose_it_is(file):
    record = CrashRecord(file)
    for number in range(3 * MARK_COUNT):
        mark = record.claim("m", str(number))
        run(mark, str(number))
        [found] = read_record(file).runs
        assert (found.version, found.ids) == (str(number), str(number))
        record.release(mark)
        if number > MARK_COUNT:
            break
    assert read_record(file).runs == ()


def test_more_threads_than_marks_share_the_last(file):
    record = CrashRecord(file)
    marks = [record.claim("m", "1") for _ in range(MARK_COUNT + 5)]
    run(marks[-1])
    [found] = read_record(file).runs
    assert found.model == "one of many other models"
    for mark in marks:
        record.release(mark)
    run(record.claim("m", "2"))
    assert "2" in [one.version for one in read_record(file).runs]


def test_a_thread_too_many_does_not_make_the_shared_mark_idle(file):
    record = CrashRecord(file)
    marks = [record.claim("m", "1") for _ in range(MARK_COUNT)]
    run(marks[-1], "a")
    record.release(record.claim("m", "1"))
    assert [one.ids for one in read_record(file).runs] == ["a"]


@pytest.mark.parametrize("id_", ["", "\0", "\0a", "a\0b", "é\ud800", "\u0100", "😀" * ID_CHARS])
def test_no_id_hides_a_run(file, id_):
    record = CrashRecord(file)
    mark = record.claim("m", "1")
    run(mark, id_)
    [found] = read_record(file).runs
    assert found.ids == id_.partition("\0")[0].replace("\ud800", "\ufffd")
    mark.note.value = mark.idle
    assert read_record(file).runs == ()


def test_a_note_refuses_more_than_it_holds(file):
    mark = CrashRecord(file).claim("m", "1")
    mark.note.value = "x" * (ID_CHARS + 1)
    with pytest.raises(ValueError, match="too long"):
        mark.note.value = "x" * (ID_CHARS + 2)


def test_long_names_are_cut(file):
    record = CrashRecord(file)
    run(record.claim("é" * 500, "9" * 50))
    [found] = read_record(file).runs
    assert found.model == "é" * 128
    assert found.version == "9" * 23


def test_a_new_file_has_nothing_to_tell(file):
    assert read_record(file) is None


@pytest.mark.parametrize("data", [b"x", bytes(SIZE), b"\xff" * SIZE, bytes(SIZE + 1)])
def test_what_is_no_record_is_refused(file, data):
    os.pwrite(file, data, 0)
    with pytest.raises(ValueError, match=r"it has \d+ bytes|does not begin as a record does"):
        read_record(file)


def test_a_record_in_the_format_of_another_version_is_refused(file):
    os.pwrite(file, b"inferd-runs-1" + bytes(430_067), 0)
    with pytest.raises(ValueError, match="another version of inferd wrote it"):
        read_record(file)


def test_any_bytes_behind_a_header_can_be_read(file):
    CrashRecord(file)
    os.pwrite(file, b"\xff" * (SIZE - 256), 256)
    last = read_record(file)
    assert len(last.runs) == MARK_COUNT
    assert max(len(one.ids) for one in last.runs) <= 126


def test_only_a_regular_file_is_opened(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"link|regular file"):
            open_private(tmp_path / name)
