"""An optional input that is not there."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(
                        "OUT",
                        np.array([pb_utils.get_input_tensor_by_name(r, "MAYBE") is not None]),
                    )
                ]
            )
            for r in requests
        ]
