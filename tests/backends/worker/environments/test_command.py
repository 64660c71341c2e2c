import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from inferd.backends.worker.environments.command import (
    MAX_LINE,
    MAX_LINES,
    MAX_LOGGED,
    printable,
    run_command,
)
from inferd.errors import BackendFailed, InvalidConfig


@pytest.fixture
def run(tmp_path):
    """run(code) runs Python code."""

    def call(code, timeout_s=60.0, program=sys.executable):
        variables = dict(os.environ)
        return run_command(
            (program, "-c", code), "here", folder=tmp_path, timeout_s=timeout_s, variables=variables
        )

    return call


def test_the_last_line_is_returned_and_all_are_logged(run, caplog):
    caplog.set_level(logging.INFO, "inferd.backends")
    assert run("print('one'); print('two')") == "two"
    assert [record.getMessage() for record in caplog.records] == ["here: one", "here: two"]
    assert run("") == ""


@pytest.mark.parametrize(
    ("lines", "levels"),
    [
        ("Resolved 3 packages\nInstalled 3 packages\n + errors==1.0", "INFO INFO INFO"),
        ("warning: a link failed\nInstalled", "WARNING INFO"),
        ("Using Python\nerror: no such file\n  Caused by: this", "INFO ERROR ERROR"),
        ("  \u00d7 No solution found\n  \u2570 Because a needs b", "ERROR ERROR"),
        ("ERROR: of pip", "ERROR"),
    ],
)
def test_lines_are_logged_as_what_they_say_they_are(run, caplog, lines, levels):
    caplog.set_level(logging.INFO, "inferd.backends")
    run(f"import sys; sys.stdout.buffer.write({lines.encode()!r})")
    assert [record.levelname for record in caplog.records] == levels.split()


def test_a_line_without_an_end_counts_and_so_does_what_is_no_utf_8(run):
    assert run("import sys; sys.stdout.buffer.write(b'a\\xff')") == "a\ufffd"


def test_what_fails_is_told_with_its_last_lines(run):
    with pytest.raises(InvalidConfig) as caught:
        run("for n in range(100): print(n, flush=True)\nraise SystemExit('why')")
    assert caught.value.message.startswith("here failed: 8")
    assert caught.value.message.endswith("; 99; why")
    assert caught.value.message.count(";") == MAX_LINES - 1


def test_what_says_nothing_and_fails_is_told_too(run):
    with pytest.raises(InvalidConfig, match=r"^here failed: nothing$"):
        run("raise SystemExit(3)")


@pytest.mark.slow
def test_what_takes_too_long_ends_with_all_it_has_started(run, tmp_path):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.s' + 'leep(600)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "print('begun', flush=True)\n"
        "child.wait()\n"
    )
    for timeout_s in (1, 4, 16, 60):  # on a busy machine less is not enough to begin
        with pytest.raises(BackendFailed, match=f"here took longer than {timeout_s} s") as caught:
            run(code, timeout_s=timeout_s)
        if "begun" in caught.value.message:
            break
    assert caught.value.message.endswith("; the last that was said: begun")
    pid = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 30
    while is_running(pid):
        assert time.monotonic() < deadline


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_ends_is_not_waited_for_because_of_its_children(run):
    code = (
        "import subprocess, sys\n"
        "code = 'import time; time.s' + 'leep(600)'\n"
        "print(subprocess.Popen([sys.executable, '-c', code]).pid)\n"
    )
    os.kill(int(run(code)), signal.SIGKILL)


def test_the_last_words_of_a_program_are_heard_that_ends_while_it_is_looked_at(
    run, tmp_path, monkeypatch
):
    class EndsNow(subprocess.Popen):
        """Waits until somebody looks whether it has ended, then says something and ends."""

        def poll(self):
            (tmp_path / "go").touch()
            self.wait()
            return super().poll()

    monkeypatch.setattr(subprocess, "Popen", EndsNow)
    code = (
        "import os, threading\n"
        "print('begun', flush=True)\n"
        "while not os.path.exists('go'): threading.Event().wait(0.001)\n"
        "print('the last words')\n"
    )
    assert run(code) == "the last words"


def test_a_program_that_is_not_there_is_told_by_its_name(run):
    with pytest.raises(InvalidConfig, match=r"^here: nothing cannot be started: No such file"):
        run("", program="/no/such/nothing")


def test_endless_output_is_neither_logged_nor_kept(run, caplog):
    caplog.set_level(logging.INFO, "inferd.backends")
    assert len(run("for n in range(3000): print('x' * 1000)")) == 1000
    assert len(caplog.records) == MAX_LOGGED
    assert len(caplog.records[0].getMessage()) < MAX_LINE + 50
    run("print('x' * 10_000_000)")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "fetching https://me:secret@index.org/simple?key=1#a b",
            "fetching https://index.org/simple b",
        ),
        ("git+ssh://git@host/x failed", "git+ssh://host/x failed"),
        ("error: /srv/models/m/requirements.txt:1", "error: requirements.txt:1"),
        ("file:///srv/wheels/a.whl", "a.whl"),
        ("a" * 1000, "a" * MAX_LINE),
    ],
)
def test_clients_see_no_secrets_and_no_paths(line, expected):
    assert printable(line) == expected
