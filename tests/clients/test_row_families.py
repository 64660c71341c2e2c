"""Twelve clients, each with its own values, of models whose rows depend on each other or do not.

Nothing is configured: the server reads from the files which requests it may join. Models that draw
random numbers, or train, answer differently each time and are left out.
"""

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.http
from rows_dependent import DEPENDENT
from rows_independent import INDEPENDENT
from tritonclient.utils import InferenceServerException

CLIENTS, REQUESTS = 12, 3
CHANGING = ("random", "batch norm in training")
MOST_ALONE = 9
"""Of the independent ones, how many may run alone: those that are not proved."""


@pytest.fixture(scope="module")
def cases():
    """Name of a model -> its case."""
    return {
        **{
            f"dependent_{n}": case
            for n, (name, case) in enumerate(DEPENDENT.items())
            if name not in CHANGING
        },
        **{f"independent_{n}": case for n, case in enumerate(INDEPENDENT.values())},
    }


@pytest.fixture
def address(cases, tmp_path, start):
    for name, case in cases.items():
        (tmp_path / name / "1").mkdir(parents=True)
        onnx.save(case.model(), tmp_path / name / "1" / "model.onnx")
    return start("--strict-readiness=false", models=tmp_path).http


def ask(address, model, case, number):
    """Return how many requests were answered, refused and answered wrongly."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    content = case.model().SerializeToString()
    bare = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(number)
    answered = refused = wrong = 0
    with closing(tritonclient.http.InferenceServerClient(address)) as client:
        for _ in range(REQUESTS):
            feed = case.feed(random, 1)
            inputs = []
            for name, array in feed.items():
                kind = {"f": "FP32", "i": "INT64", "b": "BOOL"}[array.dtype.kind]
                inputs.append(tritonclient.http.InferInput(name, list(array.shape), kind))
                inputs[-1].set_data_from_numpy(array)
            try:
                got = client.infer(model, inputs)
            except InferenceServerException:
                refused += 1
                continue
            answered += 1
            names = [output.name for output in bare.get_outputs()]
            for name, want in zip(names, bare.run(names, feed), strict=True):
                same = np.allclose(got.as_numpy(name), want, rtol=1e-4, atol=1e-4, equal_nan=True)
                wrong += not same
    return answered, refused, wrong


@pytest.mark.slow
def test_no_client_gets_what_another_sent(cases, address, capsys):
    joined, counts = [], np.zeros(3, int)
    with ThreadPoolExecutor(CLIENTS) as clients:
        for model, case in cases.items():
            turns = [clients.submit(ask, address, model, case, n) for n in range(CLIENTS)]
            counts += np.sum([turn.result() for turn in turns], axis=0)
            place = f"http://{address}/v2/models/{model}/config"
            with urllib.request.urlopen(place, None, 30) as got:
                parameters = json.loads(got.read())["parameters"]
            if parameters.get("inferd_joined", {}).get("string_value") == "joined":
                joined.append(model)
    answered, refused, wrong = counts.tolist()
    apart = [model for model in joined if model.startswith("independent")]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(cases)} models: {answered} answered, {refused} refused, {wrong} wrong; "
            f"{len(apart)} of {len(INDEPENDENT)} independent ones joined\n"
        )
    assert wrong == 0
    assert len(apart) == len(joined)
    assert len(apart) >= len(INDEPENDENT) - MOST_ALONE
