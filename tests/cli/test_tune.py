"""inferd tune: what it prints and writes, and what it refuses."""

import json
import os
import signal
import subprocess
import sys

import pytest

from inferd.cli import tune
from inferd.tune import session

CONFIG = """
backend: "identity"
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
parameters { key: "execute_delay_ms" value { string_value: "20" } }
"""


@pytest.fixture
def model(tmp_path):
    """The folder of a model with one setting, instances, whose runs take 20 ms."""
    folder = tmp_path / "slow"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


def test_a_model_is_tuned_from_the_command_line(model, tmp_path):
    page = tmp_path / "page.html"
    words = [model, "--goal=p99=60s", "--seconds=0.5", "--trials=2", "--cores=1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "inferd", "tune", *words, "--write", f"--html={page}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert found["candidates"] == len(found["measured"]) == 2
    assert [one["settings"] for one in found["measured"]] == [{"instances": 1}, {"instances": 2}]
    assert found["best"] in found["measured"]
    assert "config.pbtxt" in done.stderr
    assert (
        f"count: {found['best']['settings']['instances']}" in (model / "config.pbtxt").read_text()
    )
    assert "<svg" in page.read_text()


def test_a_goal_that_is_not_held_is_said_and_ends_with_1(model, capsys):
    words = [str(model), "--cores=2", "--goal=p99=1us", "--seconds=0.2", "--trials=1"]
    assert tune.run(words) == 1
    said = capsys.readouterr().out
    assert "1 of 3 candidates measured" in said
    assert "none holds the goal p99=1us; this is the nearest" in said
    assert "best" in said


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_ends_the_search_and_what_was_measured_counts(model, capsys, monkeypatch, number):
    measure, calls = session.measured, []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(*given)

    monkeypatch.setattr(session, "measured", interrupted)
    # As the command begins: until something is worth keeping, Ctrl-C ends it at once.
    signal.signal(signal.SIGINT, lambda *_: pytest.fail("the whole command is ended"))
    assert tune.run([str(model), "--cores=2", "--seconds=0.2"]) == 130
    said = capsys.readouterr()
    assert ("1 of 3 candidates measured" in said.out) is (number == 2)
    assert ("interrupted before anything was measured" in said.err) is (number == 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{model}", "--goal=p99=20"], 2, "expected as in p99=20ms"),
        (["{model}/none"], 1, "no model 'none'"),
        (["{model}", "--html=/nowhere/x.html"], 2, "nothing can be written to /nowhere"),
        (["{model}", "--trials=0"], 2, "0 is not at least 1"),
        ([], 2, "MODEL"),
    ],
)
def test_what_is_wrong_is_said(model, capsys, words, code, said):
    assert tune.run([word.replace("{model}", str(model)) for word in words]) == code
    assert said in capsys.readouterr().err


def test_help_fits_a_terminal(capsys):
    assert tune.run(["--help"]) == 0
    assert "inferd tune models/resnet --goal p99=20ms" in capsys.readouterr().out
