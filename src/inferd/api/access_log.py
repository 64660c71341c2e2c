"""AccessLog: a line for each request, as text, as JSON, or in the Common Log Format.

A line is made at once, from texts that are kept as long as they stay the same: those of the
connection, of the call, of the model. What a client chose is escaped as a JSON string in ASCII, so
that no line can pass for another.
"""

from collections.abc import Mapping
from json import encoder
from time import gmtime, strftime, time_ns
from typing import TYPE_CHECKING, Any, Final

from inferd.api.access import KeyRing
from inferd.compiled import mypyc_attr
from inferd.core.request import InferRequest
from inferd.http.access import joined
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.request_log import ClientLog, Notes, RequestLog
from inferd.observe.line_file import LineFile

if TYPE_CHECKING:
    from inferd.http.h2.request import RequestHead

MOST_TEXT: Final = 200
"""So many characters of each text that a client chose are shown."""

# Compiled, a constant tuple of known length would be made anew each time that an item is wanted.
GRPC_CODES: Final[tuple[str, ...]] = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The names of gRPC's status codes, by number."""

HTTP_OF_GRPC: Final[tuple[int, ...]] = (
    200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401,
)  # fmt: skip
"""The HTTP status that says the same as each code of gRPC, for the Common Log Format."""

_MONTHS: Final[tuple[str, ...]] = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
_NUMBERS: Final = [str(number) for number in range(10_000)]  # str() costs several times as much
_NUMBER_COUNT: Final = 10_000
_MILLISECONDS: Final = [f".{number:03d}Z" for number in range(1000)]
_quoted: Final = encoder.encode_basestring_ascii
_NONE: Final = "-"
_NO_MODEL: Final = " model=- version=- id="
_time_ns: Final = time_ns  # compiled, it is found sooner than a name that was imported


class LineClock:
    """The times in lines, UTC; one serves all connections, as most lines are of the same second.

    After `set` to a time.time_ns, `text` is 2026-01-31T12:00:00.000Z, and `common` is
    31/Jan/2026:12:00:00 +0000.
    """

    def __init__(self) -> None:
        self.text = self.common = self._second_text = ""
        self._second = self._millisecond = -1

    def set(self, ns: int) -> None:
        """Set it to a time.time_ns."""
        millisecond = ns // 1_000_000
        # Several lines in one millisecond are common under load.
        if millisecond == self._millisecond:
            return
        self._millisecond = millisecond
        second = millisecond // 1000
        if second != self._second:
            self._second = second
            parts = gmtime(second)
            self._second_text = strftime("%Y-%m-%dT%H:%M:%S", parts)
            month = _MONTHS[parts.tm_mon - 1]  # %b has a language
            self.common = strftime("%d/", parts) + month + strftime("/%Y:%H:%M:%S +0000", parts)
        self.text = self._second_text + _MILLISECONDS[millisecond % 1000]


class AccessLog(RequestLog):
    """Writes lines of one `form`, text, json or common, to `file`.

    `keys` has the API keys, if clients need any: lines give their names.
    """

    def __init__(self, file: LineFile, form: str, keys: KeyRing | None = None) -> None:
        self.file = file
        self.keys = keys
        self.clock = LineClock()
        self._form = _FORMS[form]

    def client(self, address: str, protocol: str) -> ClientLog:
        """See RequestLog."""
        return self._form(self, address, protocol)


@mypyc_attr(allow_interpreted_subclasses=True)
class LineWriter(ClientLog):
    """Makes the lines of one connection, and adds them to the file of `log`, each in its form."""

    def __init__(self, log: AccessLog, address: str, protocol: str) -> None:
        self.file = log.file
        self.clock = log.clock
        self.address = address
        self.protocol = protocol
        self._keys = log.keys
        self._last: Any = None  # the request or head that the texts are of
        self._method = self._target = b""
        self._key = ""
        self._model = self._version = _NONE
        self.about = ""

    def answered(
        self, request: HttpRequest, notes: Notes, answer: HttpAnswer, taken: int, began_ns: int
    ) -> None:
        """See ClientLog."""
        sent = 0
        # Requests that are alike may be one object for a whole connection, so identity tells most
        # of them.
        if request is not self._last:
            self._look_at(request, request.method, request.target, request.headers)
        # Its answer has the length of what a GET would get, but no content (RFC 9110, section
        # 9.3.2).
        if self._method != b"HEAD":
            for buffer in answer.buffers:
                sent += len(buffer)
        status = answer.status
        self.write(status, number_text(status), notes, taken, sent, began_ns)

    def streamed(
        self,
        request: HttpRequest,
        notes: Notes,
        status: int,
        taken: int,
        sent: int,
        began_ns: int,
    ) -> None:
        """See ClientLog."""
        if request is not self._last:
            self._look_at(request, request.method, request.target, request.headers)
        self.write(status, number_text(status), notes, taken, sent, began_ns)

    def called(
        self, head: Any, notes: Notes, status: int, taken: int, sent: int, began_ns: int
    ) -> None:
        """See ClientLog."""
        if head is not self._last:
            request_head: RequestHead = head
            # Joining the fields of a head is only needed to find a key.
            headers = {} if self._keys is None else joined(request_head.fields)
            self._look_at(head, request_head.method, request_head.path, headers)
        if 0 <= status < len(GRPC_CODES):
            http_status, name = HTTP_OF_GRPC[status], GRPC_CODES[status]
        else:
            # A code that gRPC does not have comes from a model or a library: nobody else can name
            # it.
            http_status, name = 500, str(status)
        self.write(http_status, name, notes, taken, sent, began_ns)

    def _look_at(
        self, request: object, method: bytes, target: bytes, headers: Mapping[bytes, bytes]
    ) -> None:
        """Make the texts that lines about `request`, and others like it, begin and end with."""
        # What cannot be read has no method, no target and no key, as if it were the same again.
        is_first = self._last is None
        self._last = request
        key = "" if self._keys is None else self._keys.name_of(headers)
        if is_first or method != self._method or target != self._target or key != self._key:
            self._method, self._target, self._key = method, target, key
            # Targets are bytes; each becomes one character, and is escaped if it is none of ASCII.
            call = (b"%b %b" % (method, target))[:MOST_TEXT].decode("latin-1")
            self.set_texts(call, key)

    def look_at_model(self, request: InferRequest, version: str) -> None:
        """Have `about` say what model `request` is for, and which `version` has answered it."""
        # Models and versions are mostly the same text objects from one request to the next.
        if request.model is not self._model or version is not self._version:
            self._model, self._version = request.model, version
            self.about = self.model_text(request.model[:MOST_TEXT], version[:MOST_TEXT])

    def set_texts(self, call: str, key: str) -> None:
        """Prepare for lines about `call`, a method and what follows it, by the owner of `key`."""
        raise NotImplementedError

    def model_text(self, model: str, version: str) -> str:
        """Return what a line says of a model, up to the id of the request."""
        raise NotImplementedError

    def write(
        self, http_status: int, status: str, notes: Notes, taken: int, sent: int, began_ns: int
    ) -> None:
        """Add a line; `status` is a number of HTTP or a name of gRPC's."""
        raise NotImplementedError


def number_text(number: int) -> str:
    """Return `number` in decimal digits."""
    return _NUMBERS[number] if 0 <= number < _NUMBER_COUNT else str(number)


def queue_us(request: InferRequest) -> int:
    """Return how long `request` waited for its execution, in microseconds."""
    started_ns = request.started_ns
    # Neither is there for a request that was refused, or answered by a cache.
    return (started_ns - request.queued_ns) // 1000 if started_ns and request.queued_ns else 0


def compute_us(request: InferRequest) -> int:
    """Return how long the execution took, in microseconds."""
    started_ns, ended_ns = request.started_ns, request.ended_ns
    # An answer of a cache has an end, but nothing was executed for it.
    return (ended_ns - started_ns) // 1000 if started_ns and ended_ns else 0


def id_text(id: str) -> str:
    """Return the id of a request, escaped and in quotes."""
    return _quoted(id if len(id) <= MOST_TEXT else id[:MOST_TEXT])


class TextLines(LineWriter):
    """Lines for people: fixed fields first, then NAME=VALUE."""

    def __init__(self, log: AccessLog, address: str, protocol: str) -> None:
        super().__init__(log, address, protocol)
        self._before = self._after = ""
        # What most lines have in common with the one before.
        self._status = self._about = self._call = self._sizes = ""
        self._taken = self._sent = -1

    def set_texts(self, call: str, key: str) -> None:
        """See LineWriter."""
        self._before = f" {self.address} {self.protocol} {_quoted(call)} "
        self._after = f" key={_quoted(key) if key else _NONE}\n"
        self._status = ""

    def model_text(self, model: str, version: str) -> str:
        """See LineWriter."""
        shown = version or _NONE
        # A number needs no quotes and cannot be mistaken; a version by name may hold anything.
        if version and not (version.isascii() and version.isdecimal()):
            shown = _quoted(version)
        return f" model={_quoted(model)} version={shown} id="

    def write(
        self, http_status: int, status: str, notes: Notes, taken: int, sent: int, began_ns: int
    ) -> None:
        """See LineWriter."""
        clock = self.clock
        clock.set(began_ns)
        about, id, queue, compute = _NO_MODEL, _NONE, "0", "0"
        if notes.about is not None:
            request: InferRequest = notes.about
            self.look_at_model(request, notes.version or request.version)
            about = self.about
            if request.id:
                id = id_text(request.id)
            queue, compute = number_text(queue_us(request)), number_text(compute_us(request))
        # Texts are compared by identity: they are made anew only when they change.
        if status != self._status or about is not self._about:
            self._status, self._about = status, about
            self._call = f"{self._before}{status}{about}"
        if taken != self._taken or sent != self._sent:
            self._taken, self._sent = taken, sent
            self._sizes = f" in={taken} out={sent} queue_us="
        total = number_text((_time_ns() - began_ns) // 1000)
        self.file.add(
            f"{clock.text}{self._call}{id}{self._sizes}{queue} compute_us={compute}"
            f" total_us={total}{self._after}"
        )


class JsonLines(LineWriter):
    """One JSON object per line."""

    def __init__(self, log: AccessLog, address: str, protocol: str) -> None:
        super().__init__(log, address, protocol)
        self._before = self._after = ""
        # HTTP's status is a number in JSON, gRPC's a name.
        self._quote = '"' if protocol == "gRPC" else ""  # around the status

    def set_texts(self, call: str, key: str) -> None:
        """See LineWriter."""
        self._before = (
            f'","peer":{_quoted(self.address)},"protocol":{_quoted(self.protocol)},'
            f'"call":{_quoted(call)},"status":{self._quote}'
        )
        self._after = f',"key":{_quoted(key)}}}\n' if key else "}\n"

    def model_text(self, model: str, version: str) -> str:
        """See LineWriter."""
        return f'{self._quote},"model":{_quoted(model)},"version":{_quoted(version)},"id":'

    def write(
        self, http_status: int, status: str, notes: Notes, taken: int, sent: int, began_ns: int
    ) -> None:
        """See LineWriter."""
        clock = self.clock
        clock.set(began_ns)
        about, times = self._quote, ""
        if notes.about is not None:
            request: InferRequest = notes.about
            self.look_at_model(request, notes.version or request.version)
            queue, compute = number_text(queue_us(request)), number_text(compute_us(request))
            about = self.about + id_text(request.id)
            times = f',"queue_us":{queue},"compute_us":{compute}'
        taken_text, sent_text = number_text(taken), number_text(sent)
        total = number_text((_time_ns() - began_ns) // 1000)
        self.file.add(
            f'{{"time":"{clock.text}{self._before}{status}{about},'
            f'"in_bytes":{taken_text},"out_bytes":{sent_text}{times},'
            f'"total_us":{total}{self._after}'
        )


class CommonLines(LineWriter):
    """Lines in the Common Log Format of web servers, for their tools."""

    def __init__(self, log: AccessLog, address: str, protocol: str) -> None:
        super().__init__(log, address, protocol)
        # The port is not part of the format's host; addresses of IPv6 stand in brackets.
        self._host = address.rpartition(":")[0].strip("[]") or address
        self._version_text = "HTTP/1.1" if protocol == "HTTP/1.1" else "HTTP/2.0"
        self._before = self._between = ""

    def set_texts(self, call: str, key: str) -> None:
        """See LineWriter."""
        # Blanks separate the format's fields.
        user = _quoted(key)[1:-1].replace(" ", "_") if key else _NONE
        self._before = f"{self._host} - {user} ["
        self._between = f"] {_quoted(f'{call} {self._version_text}')} "

    def write(
        self, http_status: int, status: str, notes: Notes, taken: int, sent: int, began_ns: int
    ) -> None:
        """See LineWriter."""
        clock = self.clock
        clock.set(began_ns)
        status_text, sent_text = number_text(http_status), number_text(sent)
        self.file.add(f"{self._before}{clock.common}{self._between}{status_text} {sent_text}\n")


_FORMS: Final[dict[str, type[LineWriter]]] = {
    "text": TextLines,
    "json": JsonLines,
    "common": CommonLines,
}
