"""Events in files of a limited size and number."""

import json
import subprocess
import sys

import pytest

from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventFile


def write(file, *ids):
    for one in ids:
        event = PayloadEvent(one, REQUEST, 0.0, "http", "m", "", b"{}", None, 2)
        file.write(event, {"id": one})


def ids_in(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


LINE = len('{"id":"1","data":{}}\n')


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.jsonl"


def test_a_full_file_is_followed_by_another_and_the_oldest_goes(path):
    file = EventFile(path, 2 * LINE, 3)
    file.open()
    write(file, *"123456789")
    file.close()
    assert ids_in(path) == ["9"]
    assert ids_in(path.with_name("log.jsonl.1")) == ["7", "8"]
    assert ids_in(path.with_name("log.jsonl.2")) == ["5", "6"]
    assert len(list(path.parent.iterdir())) == 3


def test_what_is_there_already_stays_and_counts(path):
    for ids in ("1", "23"):
        file = EventFile(path, 2 * LINE, 2)
        file.open()
        write(file, *ids)
        file.close()
    assert ids_in(path.with_name("log.jsonl.1")) == ["1", "2"]
    assert ids_in(path) == ["3"]


def test_one_file_begins_anew_when_it_is_full(path):
    file = EventFile(path, 2 * LINE, 1)
    file.open()
    write(file, *"123")
    file.close()
    assert ids_in(path) == ["3"] and len(list(path.parent.iterdir())) == 1


def test_an_event_larger_than_a_file_is_written_whole(path):
    file = EventFile(path, 5, 2)
    file.open()
    write(file, *"12")
    file.close()
    assert ids_in(path) == ["2"] and ids_in(path.with_name("log.jsonl.1")) == ["1"]


def test_only_the_servers_account_may_read_it(path):
    file = EventFile(path, 100, 2)
    file.open()
    file.close()
    assert path.stat().st_mode & 0o777 == 0o600


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = EventFile(Path(sys.argv[1]), 10_000, 2)
for number in range(100):
    event = PayloadEvent(str(number), REQUEST, 0.0, "http", "m", "", bytes(300), 5, 300)
    file.write(event, {"id": event.id})
"""


@pytest.mark.slow
def test_a_full_disk_leaves_no_half_lines(path):
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "File too large" in done.stderr
    assert ids_in(path) == ["0", "1"]
