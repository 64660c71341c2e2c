"""Models are loaded for real, in processes that may end as they like."""

import os
import re
import signal
import subprocess
import sys
from functools import partial

import onnx
import pytest
from good import onnx_model

from inferd.check.places import check_model, check_paths
from inferd.check.trial import try_load
from inferd.repository.local import Reading

USUAL = Reading()
IN_SERVER = 'parameters { key: "inferd_process" value { string_value: "server" } }'


def model_py(*lines):
    body = "\n        ".join(lines)
    return (
        f"class TritonPythonModel:\n    def initialize(self, args):\n        {body}\n\n"
        f"    def execute(self, requests):\n        return []\n"
    )


def model_with_untyped_output():
    """Return a model of whose output only ONNX Runtime tells the type, which it infers."""
    made = onnx.ModelProto.FromString(onnx_model())
    made.graph.output[0].ClearField("type")
    return made.SerializeToString()


def load(repository, files, timeout_s=60.0):
    def attempt(check, number, count):
        assert number <= count
        try_load(check, USUAL, timeout_s)

    return check_paths([repository(files)], USUAL, attempt).findings


def test_a_model_that_loads_is_told_with_time_and_memory(repository):
    folder = repository({"m/1/model.onnx": onnx_model()})
    check = check_model(folder, USUAL)
    try_load(check, USUAL, 60.0)
    [one] = check.findings
    assert (one.level, one.rule) == ("note", "load")
    assert re.fullmatch(
        r"version 1 loads in \d+\.\d\d s, and its process then has \d+ MB", one.text
    )
    assert check.is_complete
    assert check.config.input[0].name == "x"


@pytest.mark.slow
def test_what_goes_wrong_in_a_model_is_told(repository):
    [one] = load(repository, {"m/1/model.py": model_py("raise ValueError('no ' + 'luck')")})
    assert (one.level, one.rule, one.model) == ("error", "load", "m")
    assert one.text.startswith("version 1 does not load: ")
    assert "no luck" in one.text


@pytest.mark.slow
def test_an_error_of_the_configuration_is_told_at_its_field(repository):
    text = (
        'max_batch_size: 2\n\ninput { name: "x" data_type: TYPE_FP32 dims: 4 }\n'
        'output { name: "t" data_type: TYPE_FP32 dims: 4 }'
    )
    untyped = model_with_untyped_output()
    [one] = load(repository, {"m/1/model.onnx": untyped, "m/config.pbtxt": text})
    assert (one.level, one.rule, one.line) == ("error", "load", 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import os; print('last words', flush=True); os._exit(3)", "code 3: last words"),
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
    ],
)
def test_a_model_that_ends_its_process_ends_only_that(repository, line, words):
    files = {"m/1/model.py": model_py(line), "m/config.pbtxt": IN_SERVER}
    [one] = load(repository, files)
    assert f"its process ended with {words}" in one.text


@pytest.mark.slow
def test_a_model_that_hangs_is_given_up(repository):
    files = {"m/1/model.py": model_py("import threading; threading.Event().wait()")}
    [one] = load(repository, files | {"m/config.pbtxt": IN_SERVER}, timeout_s=3.0)
    assert (one.level, one.rule) == ("error", "load")
    assert "3 s" in one.text


@pytest.mark.slow
def test_ctrl_c_ends_what_was_started(repository, tmp_path):
    """The process of the model says its number, and is gone when the command has ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = f"import os, threading; open({str(pipe)!r}, 'w').write(str(os.getpid())); "
    files = {"m/1/model.py": model_py(line + "threading.Event().wait()")}
    folder = repository(files | {"m/config.pbtxt": IN_SERVER})
    words = [sys.executable, "-m", "inferd", "check", str(folder), "--load"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as command:
        number = int(pipe.read_text())
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    assert said == "inferd check: interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.slow
def test_an_ensemble_is_checked_with_what_its_models_turned_out_to_be(repository):
    code = model_py("pass").replace(
        "    def initialize",
        "    @staticmethod\n"
        "    def auto_complete_config(config):\n"
        "        config.add_input({'name': 'x', 'data_type': 'TYPE_FP32', 'dims': [4]})\n"
        "        config.add_output({'name': 'y', 'data_type': 'TYPE_FP32', 'dims': [4]})\n"
        "        return config\n\n    def initialize",
    )
    text = """
        platform: "ensemble"
        input { name: "A" data_type: TYPE_INT32 dims: 4 }
        output { name: "B" data_type: TYPE_FP32 dims: 4 }
        ensemble_scheduling { step { model_name: "m" model_version: -1
          input_map { key: "x" value: "A" } output_map { key: "y" value: "B" } } }
    """
    files = {"m/1/model.py": code, "e/config.pbtxt": text, "e/1/x": ""}
    folder = repository(files)
    assert check_paths([folder], USUAL).findings == []
    errors = [one for one in load(repository, files) if one.level == "error"]
    [one] = errors
    assert (one.model, one.line) == ("e", 6)
    assert "datatypes differ" in one.text


def test_a_broken_model_is_not_loaded(repository):
    calls = []
    attempt = partial(lambda *given: calls.append(given))
    assert check_paths([repository({"m/config.pbtxt": "x: 1"})], USUAL, attempt).findings
    assert calls == []
