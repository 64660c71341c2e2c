"""What the supervisor and its processes tell each other, as MessagePack in frames.

A frame is the length of a message in bytes, as an unsigned 32-bit integer in network order, and the
message.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_

import msgspec

from inferd.core.processes import Failed, Serves

MAX_MESSAGE_BYTES = 256 << 20
"""The longest message; numbers of thousands of models have some megabytes."""

_HEAD_BYTES = 4


class FromProcess(msgspec.Struct, frozen=True, tag=True):
    """A message of a process; its class is told by a field `type`."""


class ToProcess(msgspec.Struct, frozen=True, tag=True):
    """A message of the supervisor, likewise."""


class Beat(FromProcess, frozen=True):
    """The event loop of the process runs."""


class ConnectionLoad(FromProcess, frozen=True):
    """How many connections the process has, after it had `received` of those given to it."""

    connection_count: int
    received_count: int


class ModelsLoaded(FromProcess, frozen=True):
    """The models are loaded; `report` is what the log and the terminal say of them, by lines.

    `warning` says why the server would not be ready, and is empty if it would. `serves`
    are the versions that were loaded, `failed` those that were not.
    """

    report: tuple[str, ...] = ()
    warning: str = ""
    serves: Serves = {}
    failed: Failed = {}


class CannotStart(FromProcess, frozen=True):
    """The process cannot start, for a reason that it would meet again; it has been logged."""

    code: int = 1


class Propose(FromProcess, frozen=True):
    """A client wants a change. `queue`: changes in one are made one after the other.

    `key` is what the change is about: a later one about the same makes this one unnecessary for
    processes that start. One that `is_erasing` is then unnecessary itself; if its key ends with a
    slash, it is about all whose keys begin with that. `body` is for the processes alone.
    """

    id: int
    queue: str
    key: str
    body: bytes
    is_erasing: bool = False


class Vote(FromProcess, frozen=True):
    """The process can go through `gate` of a change, except for `failures`, the reason by part."""

    change: int
    gate: str
    failures: dict[str, str] = {}


class Failure(msgspec.Struct, frozen=True):
    """Why a change failed: the name of a class of inferd.errors, and its text."""

    kind: str
    text: str


class Done(FromProcess, frozen=True):
    """The change has been made in the process, or not made because of `failure`.

    `serves` is what there is now, as in ModelsLoaded; None if the change was not about models.
    """

    change: int
    failure: Failure | None = None
    serves: Serves | None = None


class Ask(FromProcess, frozen=True):
    """A question to all other processes; `own` is what this process would say."""

    id: int
    what: str
    own: bytes = b""


class Reply(FromProcess, frozen=True):
    """The answer to a Question."""

    question: int
    body: bytes


class Tally(FromProcess, frozen=True):
    """What the process has counted so far: it may end before anybody asks."""

    body: bytes


class LogChanged(FromProcess, frozen=True):
    """A client has changed the log: the fields of LogSettings, of which `file` may be ""."""

    format: str
    file: str
    verbose: int
    info: bool
    warning: bool
    error: bool


class Retire(FromProcess, frozen=True):
    """Another process is to take the place of this one, which somebody else wants to end, say."""


class Stopping(FromProcess, frozen=True):
    """The process has done what it could, and ends with `code`."""

    code: int


class Start(ToProcess, frozen=True):
    """What the process is to be: `slot` of `count`, with the server's `config`, as JSON.

    `default_address` is what ports bind whose address the configuration leaves open, `folder` the
    server's private one, and `socket` the path where the process takes what others pass on. `ports`
    are the numbers of those bound, by protocol.
    """

    number: int
    slot: int
    count: int
    config: bytes
    default_address: str
    folder: str
    socket: str
    ports: dict[str, int]


class Change(ToProcess, frozen=True):
    """Make a change; `is_replay`: the others made it before this process was there.

    `is_last`: they made no other since.
    """

    number: int
    body: bytes
    is_replay: bool = False
    is_last: bool = False


class Decide(ToProcess, frozen=True):
    """What all processes say of a gate: go through it without the parts that failed somewhere.

    With a `failure` the change is not made.
    """

    change: int
    gate: str
    failures: dict[str, str] = {}
    failure: Failure | None = None


class Answered(ToProcess, frozen=True):
    """How the proposal `id` ended, everywhere."""

    id: int
    failure: Failure | None = None


class Withdraw(ToProcess, frozen=True):
    """These did not load in other processes, so this one is not to serve them either.

    It then says again what it has loaded.
    """

    failed: Failed


class Begin(ToProcess, frozen=True):
    """The process is one of those that serve from now on."""


class Question(ToProcess, frozen=True):
    """Something that another process wants to know."""

    number: int
    what: str


class Replied(ToProcess, frozen=True):
    """What the others replied to Ask `id`; for numbers also what those that ended left."""

    id: int
    bodies: tuple[bytes, ...]


class ReadySockets(ToProcess, frozen=True):
    """The processes that serve, and where they take what belongs to them: paths by slot.

    `restart_count` is how often any was started again after it had ended.
    """

    sockets: dict[int, str]
    restart_count: int = 0


class Follow(ToProcess, frozen=True):
    """The process, and no other, is to look for changes in the repositories."""


class Reopen(ToProcess, frozen=True):
    """Open the log file again."""


class Leave(ToProcess, frozen=True):
    """Say from now on that the server is not ready: it is going to end."""


class Drain(ToProcess, frozen=True):
    """Finish what is under way, and end: no more connections will come.

    `is_replaced`: the server goes on, and another process has taken the place of this one.
    """

    is_replaced: bool = False


# MessagePack and not JSON, since bodies are bytes.
_encoder = msgspec.msgpack.Encoder()
# One decoder for each direction: neither side can be made to take what only the other may say.
_from_process = msgspec.msgpack.Decoder(reduce(or_, FromProcess.__subclasses__()))
_to_process = msgspec.msgpack.Decoder(reduce(or_, ToProcess.__subclasses__()))


class NoMessage(Exception):
    """Bytes that are no message: the other side is not what it should be."""


def framed(message: FromProcess | ToProcess) -> bytes:
    """Return the frame of `message`. Raises NoMessage if it is too long."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise NoMessage(f"a message of {len(body)} bytes, at most {MAX_MESSAGE_BYTES} are allowed")
    return len(body).to_bytes(_HEAD_BYTES, "big") + body


def from_process(body: bytes) -> FromProcess:
    """Return the message of a process. Raises NoMessage."""
    try:
        message: FromProcess = _from_process.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoMessage(f"no message of a process: {error}") from error
    return message


def to_process(body: bytes) -> ToProcess:
    """Return the message of the supervisor. Raises NoMessage."""
    try:
        message: ToProcess = _to_process.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoMessage(f"no message of the supervisor: {error}") from error
    return message


class Frames:
    """Cuts what arrives into the bodies of messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete with `received`. Raises NoMessage."""
        self._rest += received
        while len(self._rest) >= _HEAD_BYTES:
            size = int.from_bytes(self._rest[:_HEAD_BYTES], "big")
            # Before anything is waited for: four wrong bytes could
            # otherwise keep up to 4 GiB coming in.
            if size > MAX_MESSAGE_BYTES:
                msg = f"a message of {size} bytes, at most {MAX_MESSAGE_BYTES} are allowed"
                raise NoMessage(msg)
            end = _HEAD_BYTES + size
            if len(self._rest) < end:
                return
            # A copy, as what remains in the bytearray moves to its front.
            body = bytes(self._rest[_HEAD_BYTES:end])
            del self._rest[:end]
            yield body
