"""Tutorials are done as they are written: files saved, commands typed, answers compared."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from server_process import ON_FREE_PORTS, Process

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs/tutorials"
BLOCK = re.compile(r"^[ \d.]*```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`:\n*\Z")
HOUSE = re.compile(r"http://127\.0\.0\.1:8000")

RUN = {"first_model.md"}
NOT_RUN = {
    "from_mlserver.md": "needs MLServer's models; tests/repository and tests/interop have them",
    "from_tensorflow_serving.md": "needs TensorFlow",
    "from_torchserve.md": "needs PyTorch and an archive of TorchServe's",
    "from_triton.md": "needs a repository; all other tests have them",
}


def blocks_of(page):
    """The fenced blocks of a page: (language, text, the name of the file it is saved as)."""
    text = (TUTORIALS / page).read_text()
    for block in BLOCK.finditer(text):
        saved = SAVED.search(text[: block.start()])
        yield block[1], textwrap.dedent(block[2]), saved and saved[1]


def typed(command, folder):
    """What a command prints."""
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, timeout=120
    )
    return (done.stdout + done.stderr).rstrip("\n")


def same(text):
    """What was printed, but for how long it took."""
    return re.sub(r"[\d.]+ ms", "N ms", text)


def test_every_tutorial_is_run_or_listed_as_not_run():
    pages = {path.name for path in TUTORIALS.glob("*.md")}
    assert pages == RUN | set(NOT_RUN)


@pytest.mark.parametrize("page", sorted(RUN))
def test_what_a_tutorial_says_is_so(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server, here, compared = None, "", 0
    try:
        for language, text, name in blocks_of(page):
            if name:
                Path(name).write_text(HOUSE.sub(here, text) if here else text)
            elif language == "sh" and text.startswith("inferd serve"):
                server = Process(*text.split()[2:], *ON_FREE_PORTS)
                here = f"http://127.0.0.1:{server.wait_ready()}"
            elif language == "console":
                for command, expected in re.findall(
                    r"^\$ (.*)\n((?:[^$].*\n)*)", text, re.MULTILINE
                ):
                    command = HOUSE.sub(here, command)
                    if command.startswith("inferd infer"):
                        command += f" --url {here}"
                    assert same(typed(command, tmp_path)) == same(expected.rstrip("\n"))
                    compared += 1
    finally:
        if server is not None:
            server.process.terminate()
            server.end()
            server.process.stdout.close()
    assert compared >= 4


@pytest.mark.parametrize("page", sorted(RUN | set(NOT_RUN)))
def test_what_is_python_or_a_command_can_be_read(page):
    found = 0
    for language, text, _ in blocks_of(page):
        if language == "python":
            compile(text, page, "exec")
            found += 1
        elif language == "sh":
            subprocess.run(["bash", "-n", "-c", text], check=True)
            found += 1
    assert found
