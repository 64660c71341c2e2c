"""What a worker has started and left, and what somebody else has."""

import os
import subprocess
import sys
import uuid

import pytest

from inferd.backends.worker.process import VARIABLE, end_descendants

WAITS = "import signal; print(flush=True); signal.pause()"

DAEMON = f"""
import os
if not os.fork():
    os.setsid()
    if not os.fork():
        print(os.getpid(), flush=True)
        {WAITS}
    os._exit(0)
"""

BREEDS = """
import os, signal
print(flush=True)
for _ in range(6):
    if os.fork():
        signal.pause()
    os.setsid()
signal.pause()
"""


@pytest.fixture
def start():
    """start(program, mark=None) starts it, and returns it when it has printed a line."""
    started = []

    def begin(program, mark=None):
        env = dict(os.environ) | ({VARIABLE: mark} if mark else {})
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=env,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        process.first = process.stdout.readline()
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def mark():
    return uuid.uuid4().hex


def test_a_process_of_another_session_ends(start, mark):
    process = start(WAITS, mark)
    assert end_descendants(mark) == 1
    assert process.wait(60) == -9


def test_one_whose_parents_have_gone_ends(start, mark):
    parent = start(DAEMON, mark)
    assert parent.wait(60) == 0
    assert is_alive(int(parent.first))
    assert end_descendants(mark) == 1
    assert not is_alive(int(parent.first))


def test_all_of_those_end_that_start_others(start, mark):
    start(BREEDS, mark)
    assert end_descendants(mark) >= 1
    assert end_descendants(mark) == 0


def test_one_that_shows_no_variables_yet_is_looked_at_again(mark):
    following = [sys.executable, "-c", WAITS]
    variables = {VARIABLE: mark}
    program = f"import os, sys; input(); os.execve(sys.executable, {following}, {variables})"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pauses = []

    def pause(_):
        if not pauses:
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
        pauses.append(process)

    try:
        assert end_descendants(mark, pause) == 1
        assert process.wait(60) == -9
    finally:
        process.kill()
        process.communicate()


def test_one_amid_an_exec_is_waited_for_as_long_as_that_may_take(start, mark, tmp_path):
    process = start(WAITS, mark)
    folder = tmp_path / str(process.pid)
    folder.mkdir()
    (folder / "environ").write_bytes(b"")
    (folder / "statm").write_text("33 1 0 0 0 0 0\n")
    fields = ["R", *["1"] * 46, "0", "0", "0"]
    (folder / "stat").write_text(f"{process.pid} (a (strange) name) {' '.join(fields)}\n")
    pauses = []

    def pause(_):
        pauses.append(process)
        if len(pauses) == 200:
            (folder / "environ").write_bytes(f"A=1\0{VARIABLE}={mark}\0".encode())
        assert len(pauses) <= 1000

    assert end_descendants(mark, pause, tmp_path) >= 1  # the folder stays
    assert process.wait(60) == -9


def test_others_live(start, mark):
    unmarked, other = start(WAITS), start(WAITS, mark + "1")
    assert end_descendants(mark) == 0
    assert end_descendants("") == 0
    assert is_alive(unmarked.pid)
    assert is_alive(other.pid)
