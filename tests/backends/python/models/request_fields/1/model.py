"""All a request can tell."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            told = {
                "id": request.request_id(),
                "correlation_id": request.correlation_id(),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "parameters": json.loads(request.parameters()),
                "outputs": sorted(request.requested_output_names()),
                "inputs": [tensor.name() for tensor in request.inputs()],
                "cancelled": request.is_cancelled(),
                "trace": request.trace().get_context(),
            }
            text = np.array([json.dumps(told)], dtype=np.object_)
            tensors = [
                pb_utils.Tensor("OUT", text),
                pb_utils.Tensor("UNUSED", np.zeros(1, np.int32)),
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
