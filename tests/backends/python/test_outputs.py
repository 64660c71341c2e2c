"""Outputs of models in Python that are other ones than their configurations say."""

import numpy as np
import pytest
from serving import running

ZERO = np.zeros(1, np.int32)

SHAPES = """
    class TritonPythonModel:
        def execute(self, requests):
            given = {
                "A": np.zeros((2, 1), np.int32),
                "B": np.array("text", np.object_),
                "D": np.ones(1, np.float64),
                "E": np.ones(1, np.int32),
            }
            tensors = [pb_utils.Tensor(name, array) for name, array in given.items()]
            return [pb_utils.InferenceResponse(tensors) for _ in requests]
"""

SHAPES_CONFIG = """
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "A" data_type: TYPE_INT32 dims: 1 }
output { name: "B" data_type: TYPE_STRING dims: 1 }
output { name: "C" data_type: TYPE_INT32 dims: 1 }
output { name: "D" data_type: TYPE_FP32 dims: 1 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize("outputs", [None, ["A", "B", "C", "D"], ["D", "C", "B", "A"]])
def test_outputs_may_be_other_ones_than_the_configuration_says(serve, over, outputs):
    with serve(m=(SHAPES, SHAPES_CONFIG)) as asked:
        got = asked.ask("m", over, outputs, IN=ZERO)
        assert sorted(got) == ["A", "B", "D"]
        assert got["D"].dtype == np.float64
        assert got["A"].shape == (2, 1)
        assert got["B"].tolist() == b"text"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inner", "given"), [("A", (np.int32, (2, 1))), ("D", (np.float64, (1,))), ("C", None)]
)
def test_an_ensemble_passes_on_what_its_steps_give(models, inner, given):
    root = models(m=(SHAPES, SHAPES_CONFIG))
    (root / "e" / "1").mkdir(parents=True)
    (root / "e" / "config.pbtxt").write_text(
        f"""
        platform: "ensemble"
        input {{ name: "IN" data_type: TYPE_INT32 dims: -1 }}
        output {{ name: "Y" data_type: {"TYPE_FP32" if inner == "D" else "TYPE_INT32"} dims: 1 }}
        ensemble_scheduling {{
          step {{
            model_name: "m" model_version: -1
            input_map {{ key: "IN" value: "IN" }} output_map {{ key: "{inner}" value: "Y" }}
          }}
        }}
        """
    )
    with running(root) as asked:
        if given is None:
            assert asked.ask("e", IN=ZERO) == asked.ask("e", outputs=["Y"], IN=ZERO) == {}
            return
        got = asked.ask("e", IN=ZERO)["Y"]
        assert (got.dtype, got.shape) == given


IN_PARTS = """
    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for name in "AB":
                    tensor = pb_utils.Tensor(name, np.ones(1, np.int32))
                    sender.send(pb_utils.InferenceResponse([tensor]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

IN_PARTS_CONFIG = """
model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "A" data_type: TYPE_INT32 dims: 1 }
output { name: "B" data_type: TYPE_INT32 dims: 1 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [None, ["Y", "Z"]])
def test_an_ensemble_passes_on_answers_that_have_one_output_each(models, outputs):
    root = models(m=(IN_PARTS, IN_PARTS_CONFIG))
    (root / "e" / "1").mkdir(parents=True)
    (root / "e" / "config.pbtxt").write_text(
        """
        platform: "ensemble"
        input { name: "IN" data_type: TYPE_INT32 dims: -1 }
        output { name: "Y" data_type: TYPE_INT32 dims: 1 }
        output { name: "Z" data_type: TYPE_INT32 dims: 1 }
        ensemble_scheduling {
          step {
            model_name: "m" model_version: -1
            input_map { key: "IN" value: "IN" }
            output_map { key: "A" value: "Y" } output_map { key: "B" value: "Z" }
          }
        }
        """
    )
    with running(root) as asked:
        answers = [one.get_response() for one in asked.stream("e", outputs, IN=ZERO)]
        assert [[one.name for one in answer.outputs] for answer in answers] == [["Y"], ["Z"]]
