"""A sum for each sequence, by correlation id and flags."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            id, flags = request.correlation_id(), request.flags()
            if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sums[id] = 0
            self.sums[id] += int(request.inputs()[0].as_numpy()[0])
            tensors = [
                pb_utils.Tensor("OUT", np.array([self.sums[id]], np.int32)),
                pb_utils.Tensor("FLAGS", np.array([flags], np.int32)),
            ]
            if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
                del self.sums[id]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
