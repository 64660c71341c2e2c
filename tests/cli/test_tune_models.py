"""inferd tune with models of three frameworks: what it writes is sound, loads and answers right."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import inferd
from inferd.client import Client

DATA = Path(__file__).parents[1] / "data"
CAFFE2 = """
max_batch_size: 8
input { name: "data" data_type: TYPE_FP32 dims: [ 3, 32, 32 ] }
"""
PYTHON = """
backend: "python"
max_batch_size: 8
dynamic_batching { }
input { name: "data" data_type: TYPE_FP32 dims: [ 48 ] }
output { name: "sum" data_type: TYPE_FP32 dims: [ 48 ] }
"""
SUMS = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.001)
        answers = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "data").as_numpy()
            tensor = pb_utils.Tensor("sum", np.cumsum(rows, axis=1, dtype=np.float32))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""


def lay_caffe2(folder):
    """Lay a network as Caffe2 has written it, with what Caffe2 answers."""
    for name in ("model.netdef", "init_model.netdef"):
        shutil.copy(DATA / "caffe2" / name, folder / "1" / name)
    (folder / "config.pbtxt").write_text(CAFFE2)
    return "prob", np.load(DATA / "caffe2/input.npy"), np.load(DATA / "caffe2/output.npy")


def lay_mxnet(folder):
    """Lay a network as MXNet has written it, without a configuration, with what MXNet answers."""
    for ending in ("-symbol.json", "-0000.params"):
        shutil.copy(DATA / f"mxnet/cnn{ending}", folder / f"1/model{ending}")
    return "softmax", np.load(DATA / "mxnet/input.npy"), np.load(DATA / "mxnet/output.npy")


def lay_python(folder):
    """Lay a model.py that waits."""
    (folder / "1/model.py").write_text(SUMS)
    (folder / "config.pbtxt").write_text(PYTHON)
    rows = np.arange(96, dtype=np.float32).reshape(2, 48)
    return "sum", rows, np.cumsum(rows, axis=1)


def ran(*words):
    return subprocess.run(
        [sys.executable, "-m", "inferd", *map(str, words)], capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("lay", [lay_caffe2, lay_mxnet, lay_python])
def test_what_is_found_within_a_minute_is_sound_and_answers_right(tmp_path, lay):
    folder = tmp_path / "tuned"
    (folder / "1").mkdir(parents=True)
    output, given, wanted = lay(folder)
    np.save(tmp_path / "row.npy", given[:1])
    words = ["--goal=p99=10s", "--budget=50", "--seconds=0.5", "--concurrency=4", "--json"]
    done = ran("tune", folder, *words, f"--input=data=@{tmp_path}/row.npy", "--write")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["best"] in found["measured"]
    checked = ran("check", "--strict", folder)
    assert checked.returncode == 0, checked.stdout
    text = (folder / "config.pbtxt").read_text()
    assert f"count: {found['best']['settings']['instances']}" in text
    serving = inferd.Server(model_repository=[str(tmp_path)], http_address="127.0.0.1")
    with serving as server, Client(server.http_url) as client:
        answer = client.infer("tuned", {"data": given})
        np.testing.assert_allclose(answer[output], wanted, atol=2e-5)
