"""Calls a decoupled model, by exec and by async_exec, and gives up one call half way."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        got = [*self.elements(self.call("repeat", array).exec(decoupled=True))]
        got += asyncio.run(self.elements_async(array))
        endless = self.call("endless", np.ones(1, np.int32)).exec(decoupled=True)
        next(endless)
        endless.cancel()
        out = np.array(got, np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]

    def call(self, model, array):
        return pb_utils.InferenceRequest(model_name=model, inputs=[pb_utils.Tensor("IN", array)])

    def elements(self, responses):
        for response in responses:
            assert not response.has_error()
            for tensor in response.output_tensors():
                yield int(tensor.as_numpy()[0])

    async def elements_async(self, array):
        responses = await self.call("repeat_final", array).async_exec(decoupled=True)
        return list(self.elements(responses))
