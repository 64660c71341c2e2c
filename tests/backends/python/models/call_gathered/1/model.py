"""Calls at once from an execute that is no coroutine, and from threads."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        total = np.zeros_like(array)
        for response in asyncio.run(self.gathered(array)):
            total += response.output_tensors()[0].as_numpy()
        with ThreadPoolExecutor(4) as threads:
            for response in threads.map(lambda n: self.call(array, n).exec(), range(8)):
                total += response.output_tensors()[0].as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)])]

    async def gathered(self, array):
        return await asyncio.gather(*[self.call(array, n).async_exec() for n in range(4)])

    def call(self, array, n):
        return pb_utils.InferenceRequest(
            model_name="add_sub",
            requested_output_names=["SUM"],
            inputs=[pb_utils.Tensor("IN", array), pb_utils.Tensor("OTHER", np.full_like(array, n))],
        )
