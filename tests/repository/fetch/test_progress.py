"""What is said while a model is fetched."""

import io
import logging
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

from inferd.repository.fetch import progress as module
from inferd.repository.fetch.progress import LoggedProgress, progress, size_text

FETCH = """
import logging
from inferd.repository.fetch.progress import progress
with progress() as shown:
    shown.begin("hf://org/name: [model].onnx", 1000)
    shown.advance(1000, 1000)
"""


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2 << 30, "2.1 GB"), (5 * 10**13, "50.0 TB")],
)
def test_sizes_have_units(size, text):
    assert size_text(size) == text


def test_without_a_terminal_lines_are_logged_now_and_then(caplog, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now_s = [0.0]
    # Not time.monotonic itself: event loops in other threads go by it.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    caplog.set_level(logging.INFO, "inferd.repository")
    with progress() as shown:
        assert isinstance(shown, LoggedProgress)
        shown.begin("it", 4000)
        for done in (1000, 2000, 3000):
            now_s[0] += 6
            shown.advance(done, 4000)
    assert caplog.messages == ["fetching 'it', 4.0 kB", "fetching 'it': 2.0 kB of 4.0 kB"]


def test_a_terminal_has_bars():
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    subprocess.run([sys.executable, "-c", FETCH], stderr=theirs, env=environ, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "hf://org/name: [model].onnx" in shown
    assert "1.0/1.0 kB" in shown
    assert "\x1b[?25l" not in shown, "a cursor that is hidden stays so if the process is ended"
