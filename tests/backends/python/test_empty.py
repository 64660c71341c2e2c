"""Tensors without elements, behind others in their packet."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # two processes start

ECHOES = """
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([self.echo(r, n) for n in "AB"]) for r in requests]

        def echo(self, request, name):
            given = pb_utils.get_input_tensor_by_name(request, name)
            assert pb_utils.Tensor.from_dlpack(name, given).shape() == given.shape()
            return pb_utils.Tensor(name, given.as_numpy())
"""

CALLS = """
    class TritonPythonModel:
        def execute(self, requests):
            return [self.call(request) for request in requests]

        def call(self, request):
            called = pb_utils.InferenceRequest(
                model_name="echoes", inputs=request.inputs(), requested_output_names=["A", "B"])
            arrays = [(t.name(), t.as_numpy()) for t in called.exec().output_tensors()]
            return pb_utils.InferenceResponse([pb_utils.Tensor(n, array) for n, array in arrays])
"""

CONFIG = """
input { name: "A" data_type: TYPE_FP32 dims: -1 }
input { name: "B" data_type: TYPE_INT64 dims: -1 }
output { name: "A" data_type: TYPE_FP32 dims: -1 }
output { name: "B" data_type: TYPE_INT64 dims: -1 }
"""


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_any_of_several_tensors_may_be_empty(serve, over):
    with serve(echoes=(ECHOES, CONFIG), calls=(CALLS, CONFIG)) as asked:
        for model in ("echoes", "calls"):
            for sizes in ((1, 0), (0, 1), (0, 0), (5000, 0), (0, 5000)):
                a, b = np.ones(sizes[0], np.float32), np.ones(sizes[1], np.int64)
                got = asked.ask(model, over, A=a, B=b)
                assert [len(got[name]) for name in "AB"] == list(sizes)
