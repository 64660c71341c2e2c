"""Calls many times at once, in a coroutine, with an array that each call fills anew."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        array = request.inputs()[0].as_numpy()
        other = np.empty_like(array)
        calls = []
        for n in range(10):
            other[:] = n
            call = pb_utils.InferenceRequest(
                model_name="add_sub",
                model_version=1,
                requested_output_names=["SUM"],
                inputs=[pb_utils.Tensor("IN", array), pb_utils.Tensor("OTHER", other)],
            )
            calls.append(call.async_exec())
        total = np.zeros_like(array)
        for response in await asyncio.gather(*calls):
            total += response.output_tensors()[0].as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)])
