"""The requests of a run, as they are sent: inputs become messages of REST or gRPC, once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from inferd.bench.plan import PLACEHOLDER, Address, Message, Plan, varint
from inferd.bench.shared import Places
from inferd.client.headers import HeaderLines
from inferd.client.incoming import PREFIX
from inferd.client.outgoing import header_block, timeout_text
from inferd.client.protocol import protocol_of
from inferd.client.settings import ClientSettings
from inferd.core.request import InferRequest, WantedOutput
from inferd.core.request import Sequence as RequestSequence
from inferd.errors import InvalidRequest
from inferd.tensor.tensor import Parameters, Tensor

_STREAM_S: Final = 1e7  # one stream has all requests of a connection


class WantedRequest(NamedTuple):
    """What is asked of the model, beside the inputs: for all requests alike.

    `stream` says that answers come as a stream, and `has_one_answer` that each has one. A sequence
    has `sequence_length` requests; 0 is for models without sequences.
    """

    model: str
    version: str = ""
    outputs: tuple[str, ...] = ()
    parameters: Parameters | None = None
    binary: bool = True
    stream: bool = False
    has_one_answer: bool = False
    sequence_length: int = 0


def plan_of(
    settings: ClientSettings,
    inputs: Sequence[Sequence[Tensor]],
    wanted: WantedRequest,
    places: Places = (),
    tls_files: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan: each of `inputs` is a request, sent in turn. Raises InvalidRequest.

    With `places` in shared memory there are as many requests, each with the next of `inputs`. What
    `settings` say of TLS is an object of this process: generators get `tls_files`, as in Address.
    """
    if wanted.sequence_length and len(inputs) > 1:
        raise InvalidRequest("the requests of a sequence have the same inputs: give one")
    encode = _encoder(settings, wanted)
    head = b""
    if not wanted.sequence_length:
        count = max(len(inputs), len(places))
        requests = [_request(inputs[at % len(inputs)], wanted, None) for at in range(count)]
        for request, place in zip(requests, places, strict=False):
            request.outputs = [WantedOutput(name, place=span) for name, span in place.items()]
        encoded = [encode(request) for request in requests]
        messages = [Message(content) for _, content in encoded]
        head = encoded[0][0]
    else:
        messages = []
        # First, middle, last, and a sequence of one request.
        for start, end in ((True, False), (False, False), (False, True), (True, True)):
            sequence = RequestSequence(PLACEHOLDER, start, end)
            head, content = encode(_request(inputs[0], wanted, sequence))
            messages.append(_split(content, is_grpc=settings.target.is_grpc))
    target = settings.target
    return Plan(
        Address(target.host, target.port, target.is_grpc, target.is_tls, **(tls_files or {})),
        messages,
        head,
        is_stream=wanted.stream,
        has_one_answer=wanted.has_one_answer,
        sequence_length=wanted.sequence_length,
        timeout_s=settings.timeout_s,
    )


def _request(
    inputs: Sequence[Tensor], wanted: WantedRequest, sequence: RequestSequence | None
) -> InferRequest:
    request = InferRequest(wanted.model, wanted.version, inputs=list(inputs))
    request.parameters = dict(wanted.parameters or {})
    request.outputs = [WantedOutput(name) for name in wanted.outputs]
    request.sequence = sequence
    request.empty_final = wanted.stream and not wanted.has_one_answer
    return request


_Encode = Callable[[InferRequest], tuple[bytes, bytes]]


def _encoder(settings: ClientSettings, wanted: WantedRequest) -> _Encode:
    """Return what makes the header block (of gRPC, else empty) and the bytes of a request."""
    protocol: Any = protocol_of(settings.target)
    fields = HeaderLines(settings).lines(None)
    make = protocol.stream if wanted.stream else protocol.infer
    target = settings.target

    def encode(request: InferRequest) -> tuple[bytes, bytes]:
        call = make(request, binary=wanted.binary)
        body = b"".join(call.buffers)
        own = "".join(f"{name}: {value}\r\n" for name, value in call.headers)
        if target.is_grpc:
            scheme = "https" if target.is_tls else "http"
            limit = timeout_text(_STREAM_S if wanted.stream else settings.timeout_s)
            block = header_block(scheme, target.authority, call.path, fields + own, limit)
            return block, PREFIX.pack(0, len(body)) + body
        head = (
            f"POST {target.path}{call.path} HTTP/1.1\r\nHost: {target.authority}\r\n{fields}{own}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return b"", head.encode("latin-1") + body

    return encode


def _split(content: bytes, *, is_grpc: bool) -> Message:
    """Return the message around the number of its sequence."""
    number = varint(PLACEHOLDER) if is_grpc else str(PLACEHOLDER).encode()
    if content.count(number) != 1:
        msg = "the inputs hold the digits that stand for the number of a sequence; change them"
        raise InvalidRequest(msg)
    before, _, after = content.partition(number)
    return Message(before, after)
