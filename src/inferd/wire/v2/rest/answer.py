"""The constant parts of the answers to similar requests: encoded once, then only compared."""

from math import prod

import orjson

from inferd.aio.inline import INLINE_ELEMENTS
from inferd.core.request import InferResponse, WantedOutput
from inferd.memory.buffer import Buffer
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Parameters, Tensor
from inferd.wire.json.data import encode_data, unpack_short

JOIN_BYTES = 65536
"""From this size of the last array's text on, texts are not joined, which would copy them."""


class KnownAnswer:
    """The JSON of an answer around the parts that change: the id, and arrays of numbers.

    Its `parameters` are none, or UNSEQUENCED. `texts` are the pieces around those arrays; outputs
    `chosen` as binary, or with a place in shared memory, have no array.
    """

    def __init__(
        self,
        outputs: list[Tensor],
        chosen: list[WantedOutput],
        texts: list[bytes],
        parameters: Parameters | None = None,
    ) -> None:
        self._parameters = parameters
        self._outputs = [Tensor(one.name, one.datatype, one.shape, b"") for one in outputs]
        self._are_binary = [bool(one.binary) for one in chosen]
        self._are_placed = [one.place is not None for one in chosen]
        self._unpack = [unpack_short(one.datatype, prod(one.shape)) for one in outputs]
        self._texts = texts

    def fits(self, response: InferResponse) -> bool:
        """Return whether `response` differs only in its id and its data."""
        known = self._outputs
        outputs = response.outputs
        if len(outputs) != len(known) or (
            (response.parameters or self._parameters is not None)
            # By identity: UNSEQUENCED is the one object that all such answers share.
            and response.parameters is not self._parameters
        ):
            return False
        for index, tensor in enumerate(outputs):
            one = known[index]
            if (
                tensor.datatype is not one.datatype
                or tensor.shape != one.shape
                or tensor.name != one.name
                or tensor.parameters
            ):
                return False
        return True

    def encoded(self, response: InferResponse, non_finite: str) -> tuple[list[Buffer], int | None]:
        """See V2Rest.encode_infer_response, for a response that fits."""
        texts, are_binary = self._texts, self._are_binary
        head = texts[0]
        if response.id:
            # Always first, where no text in front depends on it.
            head = b'{"id":' + orjson.dumps(response.id) + b"," + head[1:]
        buffers: list[Buffer] = [head]
        are_placed = self._are_placed
        # All binary: nothing is written as JSON but the head, which is known.
        if len(texts) == 1 and True not in are_placed:
            buffers += [tensor.packed() for tensor in response.outputs]
            return buffers, len(head)
        blobs: list[Buffer] = []
        written = 0
        for index, tensor in enumerate(response.outputs):
            if are_binary[index]:
                blobs.append(tensor.packed())
                continue
            if are_placed[index]:
                continue
            written += 1
            unpack = self._unpack[index]
            if unpack is not None:
                buffers.append(orjson.dumps(unpack(tensor.data)))
            else:
                buffers.append(encode_data(tensor, non_finite))
            buffers.append(texts[written])
        if not blobs and written and len(buffers[-2]) >= JOIN_BYTES:
            return buffers, None
        text = b"".join(buffers)
        return ([text, *blobs], len(text)) if blobs else ([text], None)


def is_repeatable(tensor: Tensor, choice: WantedOutput) -> bool:
    """Return whether an output's text depends only on name, datatype and shape, besides data."""
    if tensor.parameters:
        return False
    if choice.place is not None:
        return True
    if tensor.datatype is DataType.BYTES:
        return False
    # Larger ones are written in a thread, where nothing is known.
    return 0 < prod(tensor.shape) <= INLINE_ELEMENTS
