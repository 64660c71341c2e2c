"""A batch of which some requests fail: those with a negative number."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            if array[0, 0] < 0:
                error = pb_utils.TritonError("a negative number", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
            else:
                count = np.full_like(array, len(requests))
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", count)]))
        return responses
