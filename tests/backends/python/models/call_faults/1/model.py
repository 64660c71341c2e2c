"""Calls that cannot be answered: the error is in the response, never raised."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        told = []
        for name in ("no_such_model", "exceptions", "add_sub", "repeat", "call_faults"):
            tensor = pb_utils.Tensor("IN", array)
            response = pb_utils.InferenceRequest(model_name=name, inputs=[tensor]).exec()
            assert response.has_error()
            told.append(f"{response.error().code()} {response.error().message()}")
        for response in pb_utils.InferenceRequest(model_name="x", inputs=[]).exec(decoupled=True):
            told.append(response.error().message())
        try:
            pb_utils.InferenceRequest(model_name="", inputs=[])
        except pb_utils.TritonModelException as error:
            told.append(str(error))
        out = np.array(told, dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
