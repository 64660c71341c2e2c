"""A response sender in a model that is not decoupled, used by a thread after execute."""

import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            array = request.inputs()[0].as_numpy()
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, array)).start()

    def answer(self, sender, array):
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array * 2)])
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
