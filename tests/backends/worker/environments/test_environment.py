import os
import sys
from pathlib import Path

import pytest

from inferd.backends.worker.environments.environment import Environment, environment_in, try_out
from inferd.errors import InvalidConfig


def test_a_worker_has_the_server_s_variables_but_its_own_and_secrets(monkeypatch):
    monkeypatch.setenv("INFERD_API_KEYS", "secret")
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    variables = Environment(variables={"LC_TIME": "de", "X": "1"}).all_variables()
    assert not any(name.startswith(("INFERD_", "TRITON_CLOUD_CREDENTIAL")) for name in variables)
    assert (variables["LC_TIME"], variables["X"]) == ("de", "1")
    assert variables["PYTHONUNBUFFERED"] == "1"


def test_without_more_it_is_this_interpreter():
    assert Environment().python == Path(sys.executable)


def script(venv, text):
    """An environment whose Python is a script of the shell."""
    folder = venv()
    python = folder / "bin" / "python"
    python.unlink()
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    return folder


def test_an_environment_is_its_python_and_comes_first_on_the_path(venv):
    folder = venv()
    environment = environment_in(folder, "here")
    assert environment.python == folder / "bin" / "python"
    assert environment.variables["PATH"].split(os.pathsep)[0] == str(folder / "bin")
    assert environment.variables["VIRTUAL_ENV"] == str(folder)
    assert "LD_LIBRARY_PATH" not in environment.variables


@pytest.mark.parametrize("before", [None, "/opt/lib"])
def test_condas_finds_its_libraries_too(venv, monkeypatch, before):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    if before:
        monkeypatch.setenv("LD_LIBRARY_PATH", before)
    folder = venv()
    (folder / "conda-meta").mkdir()
    variables = environment_in(folder, "here").variables
    libraries = variables["LD_LIBRARY_PATH"].split(os.pathsep)
    assert libraries == [str(folder / "lib"), *([before] if before else [])]
    assert variables["CONDA_PREFIX"] == str(folder)


def test_the_servers_own_python_can_run_models():
    try_out(Environment(), "here")


def test_a_folder_without_python_is_told(tmp_path):
    with pytest.raises(InvalidConfig, match=r"^here has no interpreter, bin/python$"):
        environment_in(tmp_path, "here")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("echo '[[3, 8], \"\"]'", "^here has Python 3.8, expected 3.9 or newer$"),
        (
            "echo '[[3, 9], \"ImportError: no\"]'",
            "^here has no numpy that works, .*: ImportError: no",
        ),
        ("echo nonsense", "^here: its Python does not work: "),
        ("true", "^here: its Python does not work: IndexError"),
        ("echo broken >&2; exit 1", "^here: its Python does not work: broken$"),
    ],
)
def test_a_python_that_is_of_no_use_is_told(venv, text, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        try_out(environment_in(script(venv, text), "here"), "here")


def test_a_python_that_cannot_be_started_is_told(venv):
    environment = environment_in(script(venv, ""), "here")
    environment.python.chmod(0o644)
    with pytest.raises(
        InvalidConfig, match=r"^here: its Python cannot be started: Permission denied$"
    ):
        try_out(environment, "here")
