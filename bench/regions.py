"""Requests through shared memory: the region, its content, and the content expected afterwards."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory

import cases
import numpy as np
from cases import Case, Request
from servers import HOST, Server
from tritonclient.grpc import service_pb2

NAME = "bench"


class Places:
    """`count` requests of a case, each with its own input and its own place for the output."""

    def __init__(self, case: Case, model: str, count: int, memory: SharedMemory) -> None:
        size = cases.SIZES[case.kind][0]
        self._numbers = np.ndarray((2, count, size), np.float32, memory.buf)
        self._numbers[0] = np.random.default_rng(7).random((count, size), dtype=np.float32)
        encode = self._message if case.protocol == "grpc" else self._document
        self.requests = [encode(model, index) for index in range(count)]

    def _at(self, place: int) -> dict[str, str | int]:
        """Return the parameters of a tensor at place number `place`."""
        size_bytes = 4 * self._numbers.shape[2]
        values = {"region": NAME, "byte_size": size_bytes, "offset": place * size_bytes}
        return {f"shared_memory_{key}": value for key, value in values.items()}

    def _message(self, model: str, index: int) -> Request:
        _, count, size = self._numbers.shape
        message = service_pb2.ModelInferRequest(model_name=model)
        given = message.inputs.add(name="INPUT0", datatype="FP32", shape=[size])
        wanted = message.outputs.add(name="OUTPUT0")
        for tensor, place in ((given, index), (wanted, count + index)):
            for key, value in self._at(place).items():
                kind = "string_param" if isinstance(value, str) else "int64_param"
                setattr(tensor.parameters[key], kind, value)
        return cases.framed(message, {})

    def _document(self, model: str, index: int) -> Request:
        _, count, size = self._numbers.shape
        at = self._at
        given = {"name": "INPUT0", "shape": [size], "datatype": "FP32", "parameters": at(index)}
        wanted = {"name": "OUTPUT0", "parameters": at(count + index)}
        document = {"inputs": [given], "outputs": [wanted]}
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json"}
        return Request(f"/v2/models/{model}/infer", headers, body, {})

    def are_right(self) -> bool:
        """Return whether every output is right and in its place."""
        return bool(np.array_equal(self._numbers[0], self._numbers[1]))

    def close(self) -> None:
        """Release the memory."""
        del self._numbers


@contextmanager
def registered(server: Server, case: Case, model: str, count: int) -> Iterator[Places]:
    """Register a region for `count` requests with `server`; remove it at the end."""
    size_bytes = 2 * count * 4 * cases.SIZES[case.kind][0]
    memory = SharedMemory(create=True, size=size_bytes)
    places = Places(case, model, count, memory)
    try:
        key = memory.name if memory.name.startswith("/") else f"/{memory.name}"
        call(server, "register", {"key": key, "byte_size": size_bytes})
        yield places
        call(server, "unregister", {})
    finally:
        places.close()
        memory.close()
        memory.unlink()


def call(server: Server, verb: str, document: dict[str, object]) -> None:
    """Register or unregister the region. Raises RuntimeError for any status but success."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        path = f"/v2/systemsharedmemory/region/{NAME}/{verb}"
        connection.request("POST", path, json.dumps(document))
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        msg = f"{server.label} answers {verb} with {response.status}: {body[:300]!r}"
        raise RuntimeError(msg)
