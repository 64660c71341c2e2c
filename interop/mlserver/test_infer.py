"""mlserver infer, MLServer's command for many requests from a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("mlserver")
COUNT = 50


def request(number, **more):
    tensor = {"name": "INPUT0", "shape": [1, 3], "datatype": "FP32", "data": [number, 0.5, -1]}
    return {"id": f"request {number}", "inputs": [tensor], **more}


@pytest.fixture
def infer(two_ports, tmp_path):
    """infer(requests, model, flags...) sends them, and returns the answers in their order."""

    def run(requests, model, *flags, server=two_ports):
        asked, answered = tmp_path / "asked.jsonl", tmp_path / "answered.jsonl"
        asked.write_text("".join(json.dumps(one) + "\n" for one in requests))
        command = [PROGRAM, "infer", "--url", server.url.split("//")[1], "--model-name", model]
        command += ["--input-data-path", asked, "--output-data-path", answered, "--retries", "1"]
        done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in answered.read_text().splitlines()]
        return sorted(answers, key=lambda one: one["parameters"]["batch_index"])

    return run


@pytest.mark.parametrize(("batch", "flags"), [("1", ()), ("8", ("--binary-data",))])
def test_every_request_gets_its_own_answer(infer, batch, flags):
    answers = infer(map(request, range(COUNT)), "rows", "--batch-size", batch, *flags)
    assert [one["id"] for one in answers] == [f"request {number}" for number in range(COUNT)]
    for number, answer in enumerate(answers):
        [output] = answer["outputs"]
        assert (answer["model_name"], output["name"]) == ("rows", "OUTPUT0")
        assert (output["shape"], output["data"]) == ([1, 3], [number, 0.5, -1.0])


def test_named_outputs_are_taken(infer):
    [answer] = infer([request(7, outputs=[{"name": "OUTPUT0"}])], "rows", "--binary-data")
    assert answer["outputs"][0]["data"] == [7.0, 0.5, -1.0]


def test_tls_is_spoken(infer, tls):
    [answer] = infer([request(7)], "rows", "--use-ssl", "--insecure", server=tls)
    assert answer["outputs"][0]["data"] == [7.0, 0.5, -1.0]


def test_the_words_of_an_error_reach_the_user(infer):
    [answer] = infer([request(7)], "nobody")
    assert "nobody" in answer["error"]["msg"]
