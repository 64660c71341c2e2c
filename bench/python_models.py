"""The bench's models in Python: each does only what its answer needs."""

from pathlib import Path

from make_models import IDENTITY_CONFIG, SIMPLE_CONFIG, write_model

HEAD = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""
IDENTITY = """    def execute(self, requests):
        answers = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values)]))
        return answers
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
PIPELINE = """    def execute(self, requests):
        return [self.run(request) for request in requests]

    def run(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0")
        for name in NAMES:
            inputs = [pb_utils.Tensor("INPUT0", tensor.as_numpy())]
            step = pb_utils.InferenceRequest(
                model_name=name, requested_output_names=["OUTPUT0"], inputs=inputs
            )
            answer = step.exec()
            if answer.has_error():
                return pb_utils.InferenceResponse([], answer.error())
            tensor = pb_utils.get_output_tensor_by_name(answer, "OUTPUT0")
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor.as_numpy())])
"""


def write_python_model(repository: Path, name: str, config: str, source: str) -> None:
    """Write the folder of one model; `source` is the body of its class."""
    write_model(repository, name, config, None)
    (repository / name / "1" / "model.py").write_text(HEAD + source)


def write_python_simple(repository: Path, name: str) -> None:
    """Write the twin of `simple`: the sum and the difference of 16 numbers."""
    config = SIMPLE_CONFIG.replace('platform: "onnxruntime_onnx"', 'backend: "python"')
    config = config.replace('name: "simple"', f'name: "{name}"')
    write_python_model(repository, name, config, SIMPLE)


def write_python_identity(repository: Path, name: str) -> None:
    """Write the twin of `identity_fp32`."""
    write_python_model(repository, name, _identity_config(name), IDENTITY)


def write_pipeline(
    repository: Path, name: str, steps: list[str], *, instance_count: int = 1
) -> None:
    """Write a model in Python that calls `steps`, of one tensor each, in sequence."""
    source = PIPELINE.replace("NAMES", repr(steps))
    config = _identity_config(name).replace("count: 1", f"count: {instance_count}")
    write_python_model(repository, name, config, source)


def write_ensemble(repository: Path, name: str, steps: list[str]) -> None:
    """Write the ensemble that does what the pipeline does."""
    tensors = ["INPUT0", *(f"t{number}" for number in range(1, len(steps))), "OUTPUT0"]
    text = "".join(
        f'step {{ model_name: "{step}" model_version: -1 '
        f'input_map {{ key: "INPUT0" value: "{taken}" }} '
        f'output_map {{ key: "OUTPUT0" value: "{given}" }} }}\n'
        for step, taken, given in zip(steps, tensors[:-1], tensors[1:], strict=True)
    )
    config = _identity_config(name).replace('backend: "python"', 'platform: "ensemble"')
    config = config.partition("instance_group")[0] + f"ensemble_scheduling {{\n{text}}}\n"
    write_model(repository, name, config, None)


def _identity_config(name: str) -> str:
    config = IDENTITY_CONFIG.replace('backend: "identity"', 'backend: "python"')
    return config.replace('name: "identity_fp32"', f'name: "{name}"')
