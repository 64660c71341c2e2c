"""The models in Python that the bench asks: each does the least that its answer needs."""

from pathlib import Path

from make_models import SIMPLE_CONFIG, write_model

HEAD = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""
SIMPLE = """    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
"""


def write_python_model(repository: Path, name: str, config: str, source: str) -> None:
    """Write the folder of one model; `source` is a body of the class."""
    write_model(repository, name, config, None)
    (repository / name / "1" / "model.py").write_text(HEAD + source)


def write_python_simple(repository: Path, name: str) -> None:
    """Write the twin of `simple`: the sum and the difference of 16 numbers."""
    config = SIMPLE_CONFIG.replace('platform: "onnxruntime_onnx"', 'backend: "python"')
    config = config.replace('name: "simple"', f'name: "{name}"')
    write_python_model(repository, name, config, SIMPLE)
