"""The Binary Tensor Data extension: tensor bytes behind the JSON part of a body."""

from math import prod
from typing import Any

from inferd.aio.inline import INLINE_STRINGS, NotFast
from inferd.core.request import InferRequest, Span
from inferd.errors import InvalidRequest
from inferd.record import Record
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.json.kinds import unreadable

HEADER = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON."""

HEADER_KEY = HEADER.lower().encode()
"""Its name among the headers of a request."""


def json_length(header: bytes | None, body_length: int) -> int:
    """Return how many bytes of a body of `body_length` are JSON; 0 marks a raw binary request.

    `header` is the value of Inference-Header-Content-Length, None when absent. Raises
    InvalidRequest when it is not a number within the body.
    """
    if header is None:
        return body_length
    if not header.isdigit():  # bytes.isdigit() is ASCII only: no sign, no space, no other digits
        raise _wrong_length(header, body_length)
    length = int(header) if len(header) < 20 else body_length + 1
    if length > body_length:
        raise _wrong_length(header, body_length)
    return length


def no_body() -> InvalidRequest:
    """Return the error for an inference whose body got lost.

    A raw request says that it is one, by a JSON part of 0 bytes; only such a body may be empty.
    """
    return InvalidRequest(
        f"the request has no body, expected an inference request as JSON, or the data of a model's "
        f"only input with {HEADER}: 0"
    )


def _wrong_length(header: bytes, body_length: int) -> InvalidRequest:
    shown = header[:40].decode("latin-1")
    if header.removeprefix(b"-").isdigit():
        return InvalidRequest(
            f"inference header size should be in range (0, {body_length}), got: {shown}; "
            f"{HEADER} is how many bytes of the body are JSON"
        )
    return InvalidRequest(
        f"Unable to parse {HEADER}, got: {shown}, expected the number of bytes of the JSON part"
    )


def decode_raw_request(model: str, version: str, body: memoryview) -> InferRequest:
    """Return a request whose whole body is its only input; all outputs are returned as binary."""
    # Name, datatype and shape follow from the model, which is not known here.
    data = Tensor("", DataType.BYTES, (), body)
    request = InferRequest(model, version, inputs=[data], binary_output=True)
    request.raw = True
    return request


class Blobs(Record):
    """The bytes of `body` behind its JSON part, handed out in the order of the inputs.

    `offset` is where the next ones begin. `on_loop`: other connections wait meanwhile, so BYTES of
    many elements are not examined here. `spans` is the shared memory that tensors refer to
    instead of bytes here, None while there is none. `model` is the name for error texts, "" if they
    are no inputs of a model.
    """

    def __init__(
        self,
        body: memoryview,
        offset: int,
        on_loop: bool = False,
        spans: list[Span] | None = None,
        model: str = "",
    ) -> None:
        self.body = body
        self.offset = offset
        self.on_loop = on_loop
        self.spans = spans
        self.model = model

    def add_span(self, span: Span) -> Span:
        """Note a tensor's shared memory, and return it."""
        if self.spans is None:
            self.spans = [span]
        else:
            self.spans.append(span)
        return span

    def take(self, name: str, datatype: DataType, shape: tuple[int, ...], size: Any) -> Tensor:
        """Return the next `size` bytes as a tensor: a view.

        Raises InvalidRequest when `size` is not a byte count, does not fit datatype and shape, or
        runs past the end, and when BYTES are malformed; NotFast for so many BYTES elements that
        they belong in a thread.
        """
        # bool is an int in Python.
        if type(size) is not int or size < 0:
            raise InvalidRequest(
                f"{unreadable('binary_data_size', 'unsigned-integer')}: that of input '{name}' "
                f"must be a number of bytes"
            )
        if shape and min(shape) < 0:
            raise InvalidRequest(
                f"input '{name}' has shape {list(shape)}: -1 belongs to metadata, "
                f"binary data need every dim"
            )
        start, end = self.offset, self.offset + size
        if end > len(self.body):
            raise InvalidRequest(
                f"unexpected size for input '{name}', expecting {end - len(self.body)} additional "
                f"bytes for model '{self.model}': it declares {size} bytes of binary data, the "
                f"body has {len(self.body) - start} left after the JSON part"
            )
        data = self.body[start:end]
        self.offset = end
        if datatype is DataType.BYTES:
            count = prod(shape)
            # Each element takes 4 bytes or more, so that a count beyond that is refused at once and
            # needs no thread.
            if self.on_loop and INLINE_STRINGS < count <= size // 4:
                raise NotFast
            check_strings(data, count, name, self.model)
        elif size != (expected := datatype.size_bytes * prod(shape)):
            raise InvalidRequest(
                f"input byte size mismatch for input '{name}' for model '{self.model}'. Expected "
                f"{expected}, got {size} bytes of binary data for {datatype.value} {list(shape)}"
            )
        return Tensor(name, datatype, shape, data)

    def check_used_up(self) -> None:
        """Raise InvalidRequest when bytes are left over."""
        if left := len(self.body) - self.offset:
            raise InvalidRequest(
                f"unexpected additional input data for model '{self.model}': the body has {left} "
                f"bytes more than its inputs declare"
            )
