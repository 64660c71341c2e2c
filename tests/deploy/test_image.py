"""The image's parts fit the server, and each other; `make image-test` runs a whole image."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from server_thread import server_in_thread
from stock_runtimes import STOCK

from inferd.cli.command_line.foreign import is_program
from inferd.config.server import ServerConfig

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/image"


@pytest.fixture(scope="module")
def steps():
    """The steps of the Dockerfile: (word, rest), in one line each."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def check_health(port):
    environ = os.environ | {"INFERD_HTTP_PORT": str(port)}
    command = [sys.executable, str(FOLDER / "healthcheck.py")]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_the_health_check_tells_a_live_server_from_none():
    config = ServerConfig(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_repository=(str(ROOT / "examples/digits/models"),),
    )
    with server_in_thread(config) as server:
        port = server.http_port
        assert check_health(port).returncode == 0
    after = check_health(port)
    assert after.returncode == 1
    assert after.stderr.startswith("the server does not answer: ")


def test_the_programs_of_stock_runtimes_are_links_to_ours(steps):
    [links] = [rest for word, rest in steps if word == "RUN" and "ln -s" in rest]
    names = re.search(r"for name in (.+?);", links)[1].split()
    ours, *others = names
    assert ours == "/usr/local/bin/inferd"
    assert [name for name in others if not is_program(name)] == []
    commands = {one.command[0] for one in STOCK.values() if one.command}
    assert commands and commands <= set(others)


def test_the_health_check_of_the_image_is_the_file_that_is_copied(steps):
    [check] = [rest for word, rest in steps if word == "HEALTHCHECK"]
    [copied] = [rest for word, rest in steps if word == "COPY" and "healthcheck.py" in rest]
    assert f'CMD ["{copied.split()[-1]}"]' in check
    assert os.access(FOLDER / "healthcheck.py", os.X_OK)


def test_it_is_not_root_and_begins_to_serve(steps):
    said = {word: rest for word, rest in steps if word in ("USER", "ENTRYPOINT", "CMD")}
    assert said == {
        "USER": "1000:1000",
        "ENTRYPOINT": '["inferd", "serve"]',
        "CMD": '["/models"]',
    }


def test_what_is_copied_is_there_and_not_ignored(steps):
    ignore = (ROOT / ".dockerignore").read_text().split()
    kept = [line[1:] for line in ignore if line.startswith("!")]
    copies = [shlex.split(rest)[:-1] for word, rest in steps if word == "COPY"]
    sources = [one for copy in copies for one in copy if not one.startswith(("--", "/"))]
    assert len(sources) >= 8
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == one or source.startswith(f"{one}/") for one in kept), source


def test_the_scripts_of_the_shell_can_be_read_by_it():
    subprocess.run(["sh", "-n", str(FOLDER / "install.sh")], check=True)
    subprocess.run(["bash", "-n", str(FOLDER / "build.sh")], check=True)
