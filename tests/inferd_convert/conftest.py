"""ONNX models, run as the server runs them."""

import onnx
import onnxruntime
import pytest


@pytest.fixture(scope="session")
def run():
    """run(model bytes, feed by name) checks the model and returns its outputs by name."""

    def answer(model, feed):
        onnx.checker.check_model(with_output_types(model))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, feed), strict=True))

    return answer


def with_output_types(model):
    """Return the model with types and shapes the checker asks for; ONNX Runtime finds them."""
    parsed = onnx.load_from_string(model)
    for output in parsed.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for port in (*parsed.graph.input, *parsed.graph.output):
        port.type.tensor_type.shape.SetInParent()
    return parsed
