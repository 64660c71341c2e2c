"""Calls a decoupled model that sends an error among its responses, and tells what comes."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        called = pb_utils.InferenceRequest(
            model_name="decoupled_faults", inputs=[pb_utils.Tensor("IN", np.array([5], np.int32))]
        )
        told = [
            response.error().message()
            if response.has_error()
            else f"{len(response.output_tensors())} tensors"
            for response in called.exec(decoupled=True)
        ]
        out = pb_utils.Tensor("OUT", np.array(told, np.object_))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
