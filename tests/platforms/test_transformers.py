"""The example of a Hugging Face pipeline, run as its page says, and beside the bare pipeline."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from transformers import pipeline
from typed import commands_of, same, typed

from inferd.client import connect

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "transformers"
TEXTS = ["a good film", "bad", "unknown", "good good bad"]


def test_the_example_prints_what_its_page_says():
    [(command, expected)] = commands_of((EXAMPLE / "README.md").read_text())
    printed = same(typed(command, ROOT))  # the answers, then what the server logs to stderr
    assert printed.startswith(same(expected.partition("```")[0]) + "\n")


def test_a_pipeline_is_served(tmp_path, serve):
    subprocess.run([sys.executable, EXAMPLE / "build.py", tmp_path], check=True)
    expected = pipeline("text-classification", model=str(tmp_path / "sentiment/1/pipeline"))(TEXTS)
    with serve(tmp_path) as server, connect(f"http://127.0.0.1:{server.http_port}") as client:
        answer = client.infer("sentiment", {"text": [[text] for text in TEXTS]})
    assert answer.strings("label") == [one["label"] for one in expected]
    scores = [one["score"] for one in expected]
    np.testing.assert_allclose(answer["score"].ravel(), scores, atol=1e-5)
