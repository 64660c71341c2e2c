"""Whether a model is ready."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        name = requests[0].inputs()[0].as_numpy()[0].decode()
        out = np.array([pb_utils.is_model_ready(model_name=name)])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
