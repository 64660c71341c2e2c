"""A minimal Python server: uvloop, one read, one write, and optionally the model.

    python bench/bare_loop.py PORT ANSWER_BYTES [MODEL_FILE]

Input is not parsed: each read counts as one whole request, which holds for wrk's small bodies, and
gets the same answer. A model runs on tensors bound beforehand.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import cast

import onnxruntime
import uvloop

HOST = "127.0.0.1"


def bound_call(model_file: str) -> Callable[[], None]:
    """Return a call of the model with inputs and outputs already bound, the API's shortest path."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model_file, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for tensor in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 1 for dim in tensor.shape]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, "int32")
        binding.bind_ortvalue_input(tensor.name, value)
    for tensor in session.get_outputs():
        shape = [dim if isinstance(dim, int) else 1 for dim in tensor.shape]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, "int32")
        binding.bind_ortvalue_output(tensor.name, value)

    def call() -> None:
        session.run_with_iobinding(binding)

    return call


class Answering(asyncio.Protocol):
    """Answers anything it receives."""

    def __init__(self, answer: bytes, call: Callable[[], None] | None) -> None:
        self._answer = answer
        self._call = call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Run the model, if there is one, and answer."""
        if self._call is not None:
            self._call()
        self._transport.write(self._answer)


async def serve(port: int, answer_bytes: int, model_file: str | None) -> None:
    """Serve until the process is ended."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {answer_bytes}\r\n\r\n"
    answer = head.encode() + bytes(answer_bytes)
    call = bound_call(model_file) if model_file else None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(answer, call), HOST, port)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: bare_loop.py PORT ANSWER_BYTES [MODEL_FILE]")
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if sys.argv[3:] else None))
