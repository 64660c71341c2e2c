"""What a response sender refuses."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        sender = requests[0].get_response_sender()
        told = []
        for arguments in ((), (7,), (None, 5), (None, final)):
            try:
                sender.send(*arguments)
            except pb_utils.TritonModelException as error:
                told.append(str(error))
        out = pb_utils.Tensor("OUT", np.array(told, dtype=np.object_))
        sender.send(pb_utils.InferenceResponse([out]))
        for arguments in (
            (pb_utils.InferenceResponse([out]),),
            (pb_utils.InferenceResponse(), final),
        ):
            try:
                sender.send(*arguments)
            except pb_utils.TritonModelException:
                continue
            raise AssertionError("a second response was taken")
        sender.send(flags=final)
