"""The headers of the TensorRT Inference Server API over HTTP: NV-InferRequest and its answers.

NV-InferRequest is an InferRequestHeader in protobuf text. protobuf's own parser takes 80 µs for one
with two inputs, so we have our own, for this one message.

One regular expression here matches each statement as clients write it; where it does not match,
`trtis_text` reads the whole header again, token by token.
"""

import re
from functools import lru_cache
from typing import Any

from inferd.errors import InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.wire.trtis.answer import escape
from inferd.wire.trtis.header import InferHeader, InputHeader, InputSource, OutputHeader
from inferd.wire.trtis.text import read_header

REQUEST = "NV-InferRequest"
RESPONSE = "NV-InferResponse"
STATUS = "NV-Status"

MAX_MESSAGE = 1000
"""Error texts are cut to about this length, as they go into a header."""


# As many digits as surely fit: numbers at the limit are for the other reader.
_SMALL = "(0|[1-9][0-9]{0,8})"
_LARGE = "(0|[1-9][0-9]{0,17})"
_NAME = r'name: ?"([^"\\\n]*)" ?'
_END = r"(?: |(?=\}))"
_STATEMENT = re.compile(
    rf"(?:(batch_size|flags): ?{_SMALL}|(id|correlation_id): ?{_LARGE})(?: |\Z)"
    rf"|input ?\{{ ?{_NAME}((?:dims: ?{_LARGE}{_END})*)"
    rf"(?:batch_byte_size: ?{_LARGE}{_END})?\}} ?()"
    rf"|output ?\{{ ?{_NAME}(?:cls ?\{{ ?count: ?{_SMALL}{_END}\}} ?)?\}} ?()"
)
_DIM = re.compile("[0-9]+")
_INPUT, _OUTPUT = 9, 12  # the number of the last group in such a statement
_LONGEST_REMEMBERED = 256
_IDS = re.compile(
    rf" ?(?:correlation_id: ?{_LARGE}(?: |\Z))?(?:id: ?{_LARGE}(?: |\Z))?"
    rf"(?:flags: ?{_SMALL} ?)?".encode()
)
"""The part that changes from request to request, as clients write it behind the tensors."""
# Behind a number, as other words could belong to what follows.
_ID_BEFORE = re.compile(rf"(?:\A|(?<=[0-9] ))id: ?{_LARGE} ".encode())
_MOST_WORDS = 2048


def decode_request_header(value: bytes) -> InferHeader:
    """Decode the value of NV-InferRequest. Raises InvalidRequest."""
    # What describes the tensors ends with a brace; behind it stands what changes.
    end = value.rfind(b"}") + 1
    if 0 < end <= _MOST_WORDS:
        words, before = value[:end], None
        if b"id:" in words:
            # Some clients write the id in front.
            before = _ID_BEFORE.search(words, 0, words.find(b"{"))
            if before is not None:
                words = words[: before.start()] + words[before.end() :]
        known = _remembered_words(words)
        ids = _IDS.fullmatch(value, end) if known is not None else None
        if known is not None and ids is not None and (before is None or ids[2] is None):
            correlation_id, request_id, flags = map(int, ids.groups(b"0"))
            if before is not None:
                request_id = int(before[1])
            return known.renewed(request_id, correlation_id, flags)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{REQUEST} cannot be read: it is not UTF-8") from None
    return _usual_header(text) or read_header(text)


@lru_cache(maxsize=1024)
def _remembered_words(words: bytes) -> InferHeader | None:
    """Return the header for `words` that only describe tensors, None for any others.

    A client describes its tensors in the same words in each request. They must hold no ids, which
    would make them differ each time. The result must never be changed.
    """
    if b"id:" in words:
        return None
    try:
        header = _usual_header(words.decode())
    except UnicodeDecodeError:
        return None
    if header is None or header.flags:
        return None
    header.words = words
    return header


def _usual_header(text: str) -> InferHeader | None:
    """Decode `text` if all of it is written the way clients do, else return None."""
    inputs: list[Any] = []
    outputs: list[Any] = []
    header = InferHeader(inputs=inputs, outputs=outputs)
    at, end = 0, len(text)
    while at < end:
        stop = text.find("} ", at) + 2
        if 0 < stop - at <= _LONGEST_REMEMBERED:
            tensor = _remembered_tensor(text[at:stop])
            if tensor is not None:
                (inputs if type(tensor) is InputHeader else outputs).append(tensor)
                at = stop
                continue
        match = _STATEMENT.match(text, at)
        if match is None:
            return None
        at = match.end()
        # The number of the last group tells which alternative has matched.
        field, number = match.group(1, 2) if match.lastindex == 2 else match.group(3, 4)
        if field is None:
            tensor = _tensor_of(match)
            (inputs if type(tensor) is InputHeader else outputs).append(tensor)
        elif getattr(header, field):
            return None  # a duplicate
        else:
            setattr(header, field, int(number))
    return header


def _tensor_of(match: re.Match[str]) -> InputHeader | OutputHeader:
    """Return the input or output that a matched statement describes."""
    if match.lastindex == _INPUT:
        name, dims, _, size = match.group(5, 6, 7, 8)
        return InputHeader(name, tuple(map(int, _DIM.findall(dims))), int(size or 0))
    name, count = match.group(10, 11)
    return OutputHeader(name, int(count or 0))


@lru_cache(maxsize=1024)
def _remembered_tensor(text: str) -> InputHeader | OutputHeader | None:
    """Return the input or output if `text` is exactly one such statement, else None.

    A client describes its tensors in the same words in each request. Never change the result.
    """
    match = _STATEMENT.fullmatch(text)
    return _tensor_of(match) if match is not None and match.lastindex in (_INPUT, _OUTPUT) else None


class Body(InputSource):
    """The bytes of inputs in the body of a request."""

    def __init__(self, body: memoryview) -> None:
        self.data = body

    def take(self, name: str, size_bytes: int, model: str) -> Any:
        """See InputSource."""
        start = self._at
        self._at = end = start + size_bytes
        if end > len(self.data):
            msg = (
                f"unexpected size for input '{name}', expecting {end - len(self.data)} bytes for "
                f"model '{model}'"
            )
            if self.data:
                msg += f" beyond the end of the body: the input has {size_bytes} in all"
            else:
                msg += ": the request has no body"
            raise InvalidRequest(msg)
        return self.data[start:end]

    def take_all(self, sizes_bytes: list[int]) -> list[Buffer] | None:
        """See InputSource."""
        data, at = self.data, 0
        taken: list[Buffer] = []
        for size in sizes_bytes:
            taken.append(data[at : at + size])
            at += size
        return taken if at == len(data) else None

    def check_used_up(self, model: str) -> None:
        """See InputSource."""
        if self._at != len(self.data):
            raise InvalidRequest(
                f"unexpected additional input data for model '{model}': the body has "
                f"{len(self.data) - self._at} bytes more than its inputs take"
            )


class StatusLine:
    """Writes NV-Status, a RequestStatus on one line; `server_id` is the server's name."""

    def __init__(self, server_id: str) -> None:
        self._server = b'server_id: "%b" request_id: ' % escape(server_id)
        # The server's name goes through % once more.
        self._success = b"NV-Status: code: SUCCESS %b%%d\r\n" % self._server.replace(b"%", b"%%")

    def success(self, number: int) -> bytes:
        """Return the whole header for the request with this number."""
        return self._success % number

    def failure(self, code: int, message: str, number: int) -> bytes:
        """Return the whole header for a request that failed; `code` is a RequestStatusCode."""
        text = escape(shortened(message))
        name = CODE_NAMES[code].encode()
        said = b'msg: "%b" ' % text if text else b""
        return b"NV-Status: code: %b %b%b%d\r\n" % (name, said, self._server, number)


CODE_NAMES = (
    "INVALID", "SUCCESS", "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE",
    "UNSUPPORTED", "ALREADY_EXISTS",
)  # fmt: skip
"""RequestStatusCode."""


def shortened(message: str) -> str:
    """Return `message`; of a long one, only both ends."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
