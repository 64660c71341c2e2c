"""Models on interpreters of their own, over sockets."""

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from serving import ONE_CONFIG

from inferd.backends.worker.environments.choice import find_uv
from inferd_worker import line, loop

TELLS = """
import os, sys

class TritonPythonModel:
    def execute(self, requests):
        said = " ".join([sys.executable, os.environ.get("VIRTUAL_ENV", ""), self.more()])
        output = pb_utils.Tensor("OUT", np.array([said], object))
        return [pb_utils.InferenceResponse([output]) for request in requests]

    def more(self):
        return "{}.{}".format(*sys.version_info)
"""
TINY = TELLS.replace('return "{}.{}".format(*sys.version_info)', "import tiny; return tiny.answer")
CONFIG = ONE_CONFIG.replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_STRING')
NUMPY = str(Path(importlib.util.find_spec("numpy").origin).parents[1])


def with_parameters(**parameters):
    lines = (
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    )
    return CONFIG + "\n".join(lines)


@pytest.fixture
def serve_with(serve, models, tmp_path):
    """serve_with(source, parameters, files) is a context: a server with the one model m."""

    def start(source, parameters=None, files=()):
        root = models()
        (root / "m").mkdir()
        for name, text in dict(files).items():
            (root / "m" / name).write_text(text)
        kept = f"python,environment-directory={tmp_path / 'kept'}"
        config = with_parameters(**(parameters or {}))
        return serve({"backend_config": (kept,)}, m=(source, config))

    return start


def said(asked):
    [answer] = asked.ask("m", IN=np.ones(1, np.int32))["OUT"]
    return answer.decode().split()


@pytest.fixture
def wheels(wheel):
    """A folder with the wheels of tiny, and of a numpy that is the one of this Python."""
    own = f"import sys\nsys.path.insert(0, {NUMPY!r})\ndel sys.modules['numpy']\nimport numpy\n"
    wheel("numpy", "9.0", own)
    return wheel("tiny", code="answer = 'fortytwo'\n")


WHERE = """
from pathlib import Path
import inferd_worker.line, inferd_worker.loop
import triton_python_backend_utils as pb_utils

class Named(pb_utils.Tensor):
    def name(self):
        return "OUT"

class Answer(pb_utils.InferenceResponse):
    pass

class TritonPythonModel:
    def execute(self, requests):
        said = " ".join([inferd_worker.line.__file__, inferd_worker.loop.__file__])
        output = Named(b"OUT", np.array([said], object))
        return [Answer(output_tensors=[output]) for request in requests]
"""


@pytest.mark.slow
def test_a_model_meets_what_is_compiled_if_anything_is(serve_with):
    with serve_with(WHERE) as asked:
        assert said(asked) == [line.__file__, loop.__file__]


@pytest.mark.slow
def test_in_another_environment_of_this_python_a_model_meets_the_same_files(
    serve_with, venv, tmp_path
):
    path = tmp_path / "env.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(venv(), ".")
    with serve_with(WHERE, {"EXECUTION_ENV_PATH": path}) as asked:
        assert said(asked) == [line.__file__, loop.__file__]


@pytest.mark.slow
def test_a_model_runs_in_a_packed_environment(serve_with, venv, tmp_path):
    path = tmp_path / "env.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(venv(), ".")
    with serve_with(TELLS, {"EXECUTION_ENV_PATH": path}) as asked:
        [_, folder, _] = said(asked)
        assert Path(folder).parent == tmp_path / "kept"


@pytest.mark.slow
def test_a_model_has_the_packages_it_asks_for(serve_with, wheels, tmp_path):
    files = {"requirements.txt": f"--no-index\n--find-links {wheels}\ntiny\n"}
    with serve_with(TINY, files=files) as asked:
        [python, _, answer] = said(asked)
        assert Path(python).is_relative_to(tmp_path / "kept")
        assert answer == "fortytwo"


@pytest.mark.slow
def test_what_does_not_resolve_is_the_reason_in_the_index(serve_with, wheels):
    files = {"requirements.txt": f"--no-index\n--find-links {wheels}\nnothing-of-that-name\n"}
    with serve_with(TINY, files=files) as asked:
        [row] = asked.http.get_model_repository_index()
        assert row["state"] == "UNAVAILABLE"
        assert "the environment of its requirements.txt failed" in row["reason"]
        assert "nothing-of-that-name" in row["reason"]
        assert str(wheels) not in row["reason"]
        assert asked.http.is_server_live()


OTHERS = [
    path
    for path in sorted(Path(sys.base_prefix).parent.glob("3.*/bin/python"))
    if (3, 9) <= tuple(map(int, path.parts[-3].split(".")[:2])) != sys.version_info[:2]
]
"""Interpreters beside this one, as version managers keep them."""


@pytest.mark.slow
@pytest.mark.parametrize("python", OTHERS[:1], ids=lambda path: path.parts[-3])
def test_a_model_runs_in_another_pythons_packed_environment(serve_with, python, tmp_path):
    """This and the next test fetch a package: numpy, as it is for that Python."""
    uv, folder, path = find_uv("here"), tmp_path / "env", tmp_path / "env.tar.gz"
    subprocess.run([uv, "venv", "--relocatable", "--python", python, folder], check=True)
    inside = folder / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--python", inside, "numpy"], check=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, ".")
    shutil.rmtree(folder)
    with serve_with(TELLS, {"EXECUTION_ENV_PATH": path}) as asked:
        assert said(asked)[-1] == ".".join(python.parts[-3].split(".")[:2])


@pytest.mark.slow
@pytest.mark.parametrize("python", OTHERS, ids=lambda path: path.parts[-3])
def test_a_model_runs_on_another_python(serve_with, python):
    files = {"requirements.txt": "# nothing but numpy, which all models have\n"}
    with serve_with(TELLS, {"inferd_python": python}, files) as asked:
        assert said(asked)[-1] == ".".join(python.parts[-3].split(".")[:2])
