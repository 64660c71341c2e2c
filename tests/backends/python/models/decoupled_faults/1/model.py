"""Decoupled, and wrong, in the way that IN says."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        [request] = requests
        which = int(request.inputs()[0].as_numpy()[0])
        sender = request.get_response_sender()
        out = pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())
        if which == 0:
            raise ValueError("before any response")
        sender.send(pb_utils.InferenceResponse([out]))
        if which == 1:
            raise ValueError("after a response")
        if which == 2:
            return []
        if which == 3:
            return None  # nobody will ever send the final flag
        if which == 5:
            error = pb_utils.TritonError("one of three")
            sender.send(pb_utils.InferenceResponse(error=error))
            sender.send(pb_utils.InferenceResponse([out]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        sender.send(pb_utils.InferenceResponse([out]))
