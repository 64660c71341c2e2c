"""Decoupled: the final flag comes with the last response; from a thread, after execute."""

import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            arguments = (request.get_response_sender(), request.inputs()[0].as_numpy())
            threading.Thread(target=self.answer, args=arguments).start()

    def answer(self, sender, elements):
        for index, element in enumerate(elements):
            is_last = index == len(elements) - 1
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0
            out = pb_utils.Tensor("OUT", element.reshape(1))
            sender.send(pb_utils.InferenceResponse([out]), flags)
