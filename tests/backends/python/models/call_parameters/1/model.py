"""Calls a model with the parameters it was asked with, and tells which that one has got."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        call = pb_utils.InferenceRequest(
            model_name="request_fields",
            inputs=requests[0].inputs(),
            parameters=requests[0].parameters(),
        )
        told = pb_utils.get_output_tensor_by_name(call.exec(), "OUT").as_numpy()[0]
        text = np.array([json.dumps(json.loads(told)["parameters"])], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])]
