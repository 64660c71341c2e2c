"""execute is a plain function around a coroutine, as decorators make them; it calls a model."""

import asyncio
import functools

import triton_python_backend_utils as pb_utils


def counted(execute):
    @functools.wraps(execute)
    def counting(self, requests):
        self.count += len(requests)
        return execute(self, requests)

    return counting


class TritonPythonModel:
    def initialize(self, args):
        self.count = 0
        self.lock = asyncio.Lock()  # that of one event loop, which all executions share

    @counted
    async def execute(self, requests):
        async with self.lock:
            tensor = pb_utils.Tensor("IN", requests[0].inputs()[0].as_numpy())
            call = pb_utils.InferenceRequest(model_name="coroutine", inputs=[tensor])
            response = await call.async_exec()
            out = pb_utils.get_output_tensor_by_name(response, "OUT")
        assert self.count
        return [pb_utils.InferenceResponse([out])]
