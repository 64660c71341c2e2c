"""Decoupled, and execute is a coroutine: requests overlap."""

import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for element in request.inputs()[0].as_numpy():
                await asyncio.sleep(0.001)
                sender.send(
                    pb_utils.InferenceResponse([pb_utils.Tensor("OUT", element.reshape(1))])
                )
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
