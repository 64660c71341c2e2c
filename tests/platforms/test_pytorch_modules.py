"""Models that are a torch.nn.Module in a model.py, with `runtime: "model.py"`."""

import numpy as np
import pytest
import torch
import tritonclient.grpc

CONFIG = """
backend: "pytorch"
runtime: "model.py"
max_batch_size: 4
input { name: "A" data_type: TYPE_FP32 dims: 2 }
input { name: "B" data_type: TYPE_FP32 dims: 2 }
output { name: "SUM" data_type: TYPE_FP32 dims: 2 }
output { name: "SCALED" data_type: TYPE_FP32 dims: 2 }
"""

MODULE = """
import torch

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * self.factor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, a, b):
        assert not self.training and not torch.is_grad_enabled()
        if a[0, 0] < 0:
            raise ValueError("too small")
        return RESULT
"""

A = np.array([[1, 2]], np.float32)
B = np.array([[10, 20]], np.float32)


@pytest.fixture
def repository(tmp_path):
    """repository(name, result, factor, config) writes a model; factor is in its model.pt."""

    def write(name, result="a + b, self.scale(a)", factor=None, config=CONFIG, text=MODULE):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
        if text is not None:
            (folder / "model.py").write_text(text.replace("RESULT", result))
        if factor is not None:
            torch.save({"scale.factor": torch.tensor(factor)}, folder / "model.pt")
        return tmp_path

    return write


def ask(client, model, a=A, b=B):
    inputs = []
    for name, values in (("A", a), ("B", b)):
        inputs.append(tritonclient.grpc.InferInput(name, values.shape, "FP32"))
        inputs[-1].set_data_from_numpy(values)
    answer = client.infer(model, inputs)
    return {name: answer.as_numpy(name).tolist() for name in ("SUM", "SCALED")}


@pytest.mark.slow
def test_a_module_is_served_with_its_state(repository, serve):
    repository("plain")
    repository("scaled", factor=3.0)
    root = repository("named", "{'SCALED': self.scale(b), 'SUM': a, 'more': a}", 0.5)
    with (
        serve(root) as server,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        assert ask(client, "plain") == {"SUM": [[11, 22]], "SCALED": [[1, 2]]}
        assert ask(client, "scaled") == {"SUM": [[11, 22]], "SCALED": [[3, 6]]}
        assert ask(client, "named") == {"SUM": [[1, 2]], "SCALED": [[5, 10]]}
        with pytest.raises(Exception, match="too small"):
            ask(client, "plain", a=-A)
        assert ask(client, "plain", a=B, b=A) == {"SUM": [[11, 22]], "SCALED": [[10, 20]]}
        assert client.get_model_metadata("plain").platform == "pytorch_libtorch"


@pytest.mark.slow
def test_what_is_wrong_with_a_module_is_told(repository, serve):
    repository("no_file", text=None)
    repository("no_class", text="import torch\n")
    repository("no_tensors", config='backend: "pytorch" runtime: "model.py"\n')
    repository("state", factor=3.0, text=MODULE.replace("self.scale = Scale()", "pass"))
    root = repository("few", "a")
    with (
        serve(root) as server,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        told = {row.name: row.reason for row in client.get_model_repository_index().models}
        assert "there is no 1/model.py, which defines its torch.nn.Module" in told["no_file"]
        assert "its model.py defines no class of torch.nn.Module" in told["no_class"]
        assert "its configuration must list inputs and outputs" in told["no_tensors"]
        assert "scale.factor" in told["state"]
        assert not [text for text in told.values() if str(root) in text]
        with pytest.raises(Exception, match="forward gives 1 tensors for 2 outputs"):
            ask(client, "few")
