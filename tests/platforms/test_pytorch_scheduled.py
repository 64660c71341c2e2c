"""TorchScript models with inputs that no client sends: of batches, and of sequences."""

import warnings

import numpy as np
import pytest
import torch
import tritonclient.grpc

PLACE = 'parameters { key: "inferd_process" value { string_value: "%s" } }\n'

RAGGED = """
platform: "pytorch_libtorch"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" data_type: TYPE_INT32 source_input: "x"
}
output { name: "total" data_type: TYPE_FP32 dims: 1 }
dynamic_batching { max_queue_delay_microseconds: 1000 }
"""

SUMMED = """
platform: "pytorch_libtorch"
max_batch_size: 4
input { name: "INPUT__0" data_type: TYPE_FP32 dims: 1 }
output { name: "OUTPUT__1" data_type: TYPE_FP32 dims: 1 }
sequence_batching {
  control_input {
    name: "START__1" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }
  }
  state { input_name: "STATE__2" output_name: "STATE__0" data_type: TYPE_FP32 dims: 1 }
}
"""


class Totals(torch.nn.Module):
    def forward(self, x, ends):
        sums = torch.cumsum(x, 0)[ends.long() - 1]
        return torch.diff(sums, prepend=torch.zeros(1)).unsqueeze(1)


class Summed(torch.nn.Module):
    def forward(self, x, start, state):
        total = torch.where(start > 0, torch.zeros_like(state), state) + x
        return total, total * 10


@pytest.fixture
def repository(tmp_path):
    for place in ("server", "worker"):
        for name, module, config in (("ragged", Totals(), RAGGED), ("summed", Summed(), SUMMED)):
            folder = tmp_path / f"{name}_{place}" / "1"
            folder.mkdir(parents=True)
            (folder.parent / "config.pbtxt").write_text(config + PLACE % place)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.jit.script(module).save(str(folder / "model.pt"))
    return tmp_path


@pytest.mark.slow
def test_what_the_scheduler_makes_reaches_arguments_in_both_places(repository, serve):
    with (
        serve(repository) as server,
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):

        def ask(model, name, *values, **more):
            array = np.array([values], np.float32)
            given = tritonclient.grpc.InferInput(name, array.shape, "FP32")
            given.set_data_from_numpy(array)
            result = client.infer(model, [given], **more)
            [output] = result.get_response().outputs
            return output.name, result.as_numpy(output.name).tolist()

        for place in ("server", "worker"):
            assert ask(f"ragged_{place}", "x", 1, 2, 3) == ("total", [[6]])
            for number, total in enumerate((10, 20, 30)):
                step = {"sequence_id": 7, "sequence_start": not number}
                answer = ask(f"summed_{place}", "INPUT__0", 1, **step)
                assert answer == ("OUTPUT__1", [[total]])
