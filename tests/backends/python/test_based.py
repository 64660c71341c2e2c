"""Python-based backends: one model.py in --backend-directory runs the files of many models."""

import numpy as np
import pytest
from serving import HEAD, ONE_CONFIG, parameter, running

NUMBERS = np.array([1, 2], np.int32)

TIMES = (
    HEAD
    + """
import json, os
from .helper import text_of
from times import helper

class TritonPythonModel:
    def initialize(self, args):
        folder = pb_utils.get_model_dir()
        assert folder == os.path.join(args["model_repository"], args["model_version"])
        with open(os.path.join(folder, "times.json")) as file:
            self.factor = json.loads(text_of(file))["factor"]

    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "IN").as_numpy() for one in requests]
        if self.factor == 0:
            raise ValueError("nothing to do")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one * self.factor)])
                for one in found]
"""
)


PID = """
import os

class TritonPythonModel:
    def execute(self, requests):
        pid = np.array([os.getpid()], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)])]
"""


@pytest.fixture
def backends(tmp_path):
    """A folder with the Python-based backend "times", and "pytorch", which is compiled too."""
    folder = tmp_path / "backends"
    for name in ("times", "pytorch"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.py").write_text(TIMES.replace("times import", f"{name} import"))
        (folder / name / "helper.py").write_text("def text_of(file):\n    return file.read()\n")
    (folder / "magic").mkdir()
    (folder / "magic" / "libtriton_magic.so").write_bytes(b"\x7fELF")
    return folder


@pytest.fixture
def repository(tmp_path):
    """repository(name=(config, factor)) writes models that are only numbers in a file."""
    root = tmp_path / "models"

    def write(**models):
        for name, (config, factor) in models.items():
            folder = root / name / "1"
            folder.mkdir(parents=True)
            (root / name / "config.pbtxt").write_text(config + ONE_CONFIG)
            (folder / "times.json").write_text(f'{{"factor": {factor}}}')
        return root

    return write


def reasons(asked):
    return {row.name: row.reason for row in asked.server.engine.catalog.index() if row.reason}


@pytest.mark.slow
@pytest.mark.parametrize("process", ["worker", "server"])
def test_models_of_a_python_based_backend_have_its_code_and_their_own_files(
    repository, backends, process
):
    config = 'backend: "times"\n' + parameter("inferd_process", process)
    root = repository(two=(config, 2), three=(config, 3), broken=(config, 0))
    with running(root, backend_directory=str(backends)) as asked:
        assert reasons(asked) == {}
        for name, factor in (("two", 2), ("three", 3)):
            assert list(asked.ask(name, IN=NUMBERS)["OUT"]) == [factor, 2 * factor]
            assert asked.http.get_model_metadata(name)["platform"] == "times"
        with pytest.raises(Exception, match=r"nothing to do \(times/model.py, line \d+, in exec"):
            asked.ask("broken", IN=NUMBERS)


@pytest.mark.slow
def test_runtime_model_py_means_the_python_based_backend_of_a_name_that_we_have(
    repository, backends
):
    root = repository(net=('backend: "pytorch"\nruntime: "model.py"\n', 5))
    with running(root, backend_directory=str(backends)) as asked:
        assert reasons(asked) == {}
        assert list(asked.ask("net", IN=NUMBERS)["OUT"]) == [5, 10]
        assert asked.http.get_model_metadata("net")["platform"] == "pytorch_libtorch"


def test_what_is_no_python_based_backend_is_named(repository, backends):
    root = repository(
        a=('backend: "magic"\n', 1),
        b=('backend: "nothing"\n', 1),
        c=('backend: "../backends/times"\n', 1),
        d=('backend: "onnxruntime"\nruntime: "model.py"\n', 1),
    )
    with running(root, backend_directory=str(backends)) as asked:
        told = reasons(asked)
    assert "there is no backend 'magic', known are: " in told["a"]
    assert "magic/libtriton_magic.so in --backend-directory is compiled" in told["a"]
    assert told["b"].endswith("there is no nothing/model.py in --backend-directory")
    assert "there is no backend '../backends/times'" in told["c"]
    assert told["d"].endswith(
        "runtime 'model.py' asks for a Python-based backend, but there is no onnxruntime/model.py "
        "in --backend-directory"
    )
    assert str(backends) not in str(told)


def test_without_a_backend_directory_the_option_is_named(repository):
    root = repository(net=('backend: "onnxruntime"\nruntime: "model.py"\n', 5))
    with running(root) as asked:
        assert reasons(asked)["net"].endswith("but no --backend-directory is given, where such are")


@pytest.mark.slow
def test_polling_follows_the_code_of_a_python_based_backend(repository, backends, eventually):
    root = repository(
        two=('backend: "times"\n', 2),
        net=('backend: "pytorch"\nruntime: "model.py"\n', 5),
    )
    (root / "own" / "1").mkdir(parents=True)
    (root / "own" / "config.pbtxt").write_text('backend: "python"\n' + ONE_CONFIG)
    (root / "own" / "1" / "model.py").write_text(HEAD + PID)
    options = {"model_control_mode": "poll", "repository_poll_secs": 0.05}

    def changed(asked, model, answer):
        return list(asked.ask(model, IN=NUMBERS)["OUT"]) == answer

    with running(root, backend_directory=str(backends), **options) as asked:
        [pid] = asked.ask("own", IN=NUMBERS)["OUT"]
        for name, model, before, after in (
            ("times", "two", [2, 4], [-2, -4]),
            ("pytorch", "net", [5, 10], [-5, -10]),
        ):
            assert changed(asked, model, before)
            code = backends / name / "model.py"
            code.write_text(code.read_text().replace("one * self.factor", "-one * self.factor"))
            eventually(lambda model=model, after=after: changed(asked, model, after))
        assert changed(asked, "own", [pid])
