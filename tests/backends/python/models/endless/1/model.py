"""Answers until the request is cancelled; a second one is told how far the first came."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.count = -1

    def execute(self, requests):
        [request] = requests
        sender = request.get_response_sender()
        asked = int(request.inputs()[0].as_numpy()[0])
        count = 0
        while asked and not sender.is_cancelled() and not request.is_cancelled():
            self.send(sender, 1, count)
            count += 1
        if asked:
            self.count = count
        else:
            self.send(sender, 0, self.count)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def send(self, sender, out, count):
        sender.send(
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("OUT", np.array([out], np.int32)),
                    pb_utils.Tensor("COUNT", np.array([count], np.int32)),
                ]
            )
        )
