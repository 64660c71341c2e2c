import os
import subprocess
import sys

import pytest

import inferd
from inferd import record
from inferd.cli.main import main

HEAVY = {"numpy", "onnxruntime", "grpc", "google.protobuf", "msgspec", "asyncio", "uvloop", "ssl"}


def run(code):
    """Run Python code in a fresh interpreter and return what it prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_printed(capsys, word):
    assert main([word]) == 0
    build = "not compiled" if record.__file__.endswith(".py") else "compiled"
    python = f"CPython {sys.version.split()[0]}"
    assert capsys.readouterr().out == f"inferd {inferd.__version__} ({build}, {python})\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_the_verbs(capsys, arguments):
    assert main(arguments) == 0
    assert "inferd serve PATH... [options]" in capsys.readouterr().out


def test_an_unknown_verb_is_wrong_usage(capsys):
    assert main(["severe"]) == 2
    assert capsys.readouterr().err == "inferd: there is no command 'severe'; see inferd --help\n"


def test_the_error_for_a_path_without_a_verb_names_the_one_that_serves_it(capsys, tmp_path):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(f"; to serve it: inferd serve {tmp_path}\n")


@pytest.mark.parametrize(
    "code",
    [
        "import inferd",
        "from inferd.cli.main import main; main(['--help'])",
        "from inferd.cli.main import main; main(['serve', '--help'])",
    ],
)
def test_help_does_not_wait_for_heavy_imports(code):
    said = run(f"import sys; {code}; print('loaded:', *sorted({HEAVY!r} & sys.modules.keys()))")
    assert said.splitlines()[-1] == "loaded:"


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "inferd", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"inferd {inferd.__version__} (")


INTERRUPTED = """
import os, signal, sys

class CtrlC:  # as the user presses it while this module is about to be imported
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born deaf to it
sys.meta_path.insert(0, CtrlC())
sys.argv = ["inferd", "serve", "models"]
from inferd.cli.main import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inferd.cli.serve", "inferd.server.process", "numpy", "uvloop"])
def test_an_early_interrupt_is_one_line(name):
    command = [sys.executable, "-c", INTERRUPTED.format(name=name)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "inferd: interrupted\n")


def test_a_reader_that_has_gone_is_no_error_to_tell():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        words = [sys.executable, "-m", "inferd", "serve", "--help"]
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
