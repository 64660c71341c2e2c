"""Decoupled: a response for each element, then the final flag by itself."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for element in request.inputs()[0].as_numpy():
                sender.send(
                    pb_utils.InferenceResponse([pb_utils.Tensor("OUT", element.reshape(1))])
                )
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
