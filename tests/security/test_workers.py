"""Worker processes: names become no commands, and nobody learns or reaches their memory."""

import json
from pathlib import Path

import pytest

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        counts = [pb_utils.get_input_tensor_by_name(one, "COUNT").as_numpy() for one in requests]
        out = [np.zeros(int(count[0]), np.float32) for count in counts]
        tensors = [pb_utils.Tensor("OUT", one) for one in out]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
"""
CONFIG = """
backend: "python"
input { name: "COUNT" data_type: TYPE_INT64 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""
COMMANDS = [
    "a;touch planted",
    "$(touch planted)",
    "`touch planted`",
    "a | touch planted",
    "-c",
    "a'b\"c",
]


def put(target, name):
    folder = target.repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(MODEL)
    (folder / "config.pbtxt").write_text(CONFIG)
    return "".join(f"%{byte:02x}" for byte in name.encode())


def infer(target, quoted, count):
    tensor = {"name": "COUNT", "datatype": "INT64", "shape": [1], "data": [count]}
    body = json.dumps({"inputs": [tensor]})
    return target.ask("POST", f"/v2/models/{quoted}/infer", body)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS, ids=ascii)
def test_the_name_of_a_model_is_no_command(target, name):
    quoted = put(target, name)
    status, answer = target.ask("POST", f"/v2/repository/models/{quoted}/load", b"{}")
    assert status == 200, answer
    status, answer = infer(target, quoted, 2)
    assert status == 200, answer
    assert json.loads(answer)["outputs"][0]["data"] == [0.0, 0.0]
    target.ask("POST", f"/v2/repository/models/{quoted}/unload", b"{}")
    assert not list(target.folder.rglob("planted*")) and not Path("planted").exists()


@pytest.mark.slow
@pytest.mark.parametrize("parameter", ["EXECUTION_ENV_PATH", "inferd_python"])
def test_what_a_configuration_says_of_interpreters_is_no_command(target, parameter):
    if not (target.repository / "interpreted").exists():
        put(target, "interpreted")
    planted = target.folder / "planted"
    for value in (
        f"/bin/sh -c 'touch {planted}'",
        f"x; touch {planted}",
        f"$(touch {planted})",
        f"--directory={planted}",
        f"-c touch {planted}",
        "\n",
        "/dev/stdin",
        "/etc/passwd",
    ):
        config = {
            "backend": "python",
            "input": [{"name": "COUNT", "data_type": "TYPE_INT64", "dims": [1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
            "parameters": {parameter: {"string_value": value}},
        }
        body = json.dumps({"parameters": {"config": json.dumps(config)}})
        status, answer = target.ask("POST", "/v2/repository/models/interpreted/load", body)
        assert 400 <= status < 600 and b"error" in answer, answer
        assert b"root:" not in answer
        assert not planted.exists()


@pytest.mark.slow
def test_the_memory_of_workers_has_no_name_to_be_told_or_opened(target):
    before = set(Path("/dev/shm").iterdir())
    quoted = put(target, "measured")
    assert target.ask("POST", f"/v2/repository/models/{quoted}/load", b"{}")[0] == 200
    assert infer(target, quoted, 1 << 20)[0] == 200
    made = [path.name for path in set(Path("/dev/shm").iterdir()) - before]
    assert not [name for name in made if not name.startswith("test_inferd_")]
    status, answer = infer(target, quoted, 1 << 22)
    assert status >= 400, "more than its memory may have was not refused"
    for told in ("/dev/shm", "/proc", "memfd", str(target.folder)):
        assert told not in answer.decode()
    assert infer(target, quoted, 4)[0] == 200
    target.ask("POST", f"/v2/repository/models/{quoted}/unload", b"{}")
