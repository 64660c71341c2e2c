"""Two of the bench's models on bare grpcio: what its two servers cost by themselves.

    python bench/grpcio_server.py aio|sync REPOSITORY PORT

The handlers do only what an answer needs: parse the message, run the model, write the message.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

THREADS = 16
HOST = "127.0.0.1"
LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Models:
    """Answers ModelInfer for `simple` and `identity_fp32`."""

    def __init__(self, repository: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            repository / "simple" / "1" / "model.onnx", options, providers=["CPUExecutionProvider"]
        )

    def answer(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        """Return the model's answer."""
        response = pb.ModelInferResponse(model_name=request.model_name, id=request.id)
        if request.model_name == "identity_fp32":
            [tensor] = request.inputs
            response.outputs.add(name="OUTPUT0", datatype="FP32", shape=tensor.shape)
            response.raw_output_contents.append(request.raw_input_contents[0])
            return response
        arrays = {
            tensor.name: np.frombuffer(raw, np.int32).reshape(tensor.shape)
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        names = [output.name for output in request.outputs]
        for name, array in zip(names, self._session.run(names, arrays), strict=True):
            response.outputs.add(name=name, datatype="INT32", shape=array.shape)
            response.raw_output_contents.append(array.tobytes())
        return response


class Sync(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The service, with a thread for each call."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def ModelInfer(  # noqa: N802 - gRPC's name
        self, request: pb.ModelInferRequest, _context: object
    ) -> pb.ModelInferResponse:
        """See Models.answer."""
        return self._models.answer(request)


class Aio(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The service, on an event loop."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def ModelInfer(  # noqa: N802 - gRPC's name
        self, request: pb.ModelInferRequest, _context: object
    ) -> pb.ModelInferResponse:
        """See Models.answer."""
        return self._models.answer(request)


def serve_sync(models: Models, port: int) -> None:
    """Serve until the process is ended."""
    server = grpc.server(ThreadPoolExecutor(THREADS), options=LIMITS)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Sync(models), server)
    server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    server.wait_for_termination()


async def serve_aio(models: Models, port: int) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server(options=LIMITS)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Aio(models), server)
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Read the command line and serve."""
    if len(sys.argv) != 4 or sys.argv[1] not in ("aio", "sync"):
        sys.exit("usage: grpcio_server.py aio|sync REPOSITORY PORT")
    kind, repository, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    models = Models(repository)
    if kind == "sync":
        serve_sync(models, port)
    else:
        asyncio.run(serve_aio(models, port))


if __name__ == "__main__":
    main()
