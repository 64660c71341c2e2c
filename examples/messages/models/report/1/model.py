"""Writes what the other steps found as one line of JSON."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


def column(request: pb_utils.InferenceRequest, name: str) -> list:
    """Return an input [n, 1] as a list."""
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()[:, 0].tolist()


def line_of(language: bytes, count: int, text: bytes) -> str:
    """Return the line of one message."""
    report = {"language": language.decode(), "hidden": count, "text": text.decode()}
    return json.dumps(report, ensure_ascii=False)


class TritonPythonModel:
    """One instance."""

    def execute(self, requests: list) -> list:
        """Answer each request with a line for each of its messages."""
        responses = []
        for request in requests:
            names = ("language", "hidden_count", "text")
            columns = [column(request, name) for name in names]
            lines = [[line_of(*one)] for one in zip(*columns, strict=True)]
            tensor = pb_utils.Tensor("report", np.array(lines, object))
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
