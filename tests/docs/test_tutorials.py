"""Tutorials are done as they are written: files saved, commands typed, answers compared."""

import re
import subprocess
from pathlib import Path

import pytest
from server_process import ON_FREE_PORTS, Process
from typed import blocks_of, commands_of, same, typed

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs/tutorials"
SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`:\n*\Z")
HOUSE = re.compile(r"http://127\.0\.0\.1:8000")

RUN = {"first_model.md"}
NOT_RUN = {
    "from_mlserver.md": "needs MLServer's models; tests/repository and tests/interop have them",
    "from_tensorflow_serving.md": "needs TensorFlow",
    "from_torchserve.md": "needs PyTorch and an archive of TorchServe's",
    "from_triton.md": "needs a repository; all other tests have them",
}


def saved_blocks_of(page):
    """The fenced blocks of a page: (language, text, the name of the file it is saved as)."""
    text = (TUTORIALS / page).read_text()
    for language, block, start in blocks_of(text):
        saved = SAVED.search(text[:start])
        yield language, block, saved and saved[1]


def test_every_tutorial_is_run_or_listed_as_not_run():
    pages = {path.name for path in TUTORIALS.glob("*.md")}
    assert pages == RUN | set(NOT_RUN)


@pytest.mark.parametrize("page", sorted(RUN))
def test_what_a_tutorial_says_is_so(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server, here, compared = None, "", 0
    try:
        for language, text, name in saved_blocks_of(page):
            if name:
                Path(name).write_text(HOUSE.sub(here, text) if here else text)
            elif language == "sh" and text.startswith("inferd serve"):
                server = Process(*text.split()[2:], *ON_FREE_PORTS)
                here = f"http://127.0.0.1:{server.wait_ready()}"
            elif language == "console":
                for command, expected in commands_of(text):
                    command = HOUSE.sub(here, command)
                    if command.startswith("inferd infer"):
                        command += f" --url {here}"
                    assert same(typed(command, tmp_path)) == same(expected)
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
    for language, text, _ in saved_blocks_of(page):
        if language == "python":
            compile(text, page, "exec")
            found += 1
        elif language == "sh":
            subprocess.run(["bash", "-n", "-c", text], check=True)
            found += 1
    assert found
