"""Part: what one process of a server says to another that shows the dashboard."""

import msgspec

from inferd.errors import InferdError
from inferd.observe.log_lines import LogLine
from inferd.ui.figures.history import Row
from inferd.ui.figures.notable import NotableRequest


class Seen(msgspec.Struct, array_like=True, frozen=True):
    """What has been heard of a process: the last second, and the numbers up to which the rest is.

    All 0: nothing.
    """

    second: int = 0
    models: int = 0
    lines: int = 0
    requests: int = 0


class FigureQuestion(msgspec.Struct):
    """What is wanted: what is new since what was `seen` of each process, by its key.

    `details` are the model versions of which everything is wanted.
    """

    seen: dict[str, Seen] = {}
    history: bool = False
    models: bool = False
    lines: bool = False
    requests: bool = False
    details: list[tuple[str, str]] = []


class ModelPart(msgspec.Struct, array_like=True):
    """A model version in one process. `born`: see Counts. Times in ns, `last` in ms since 1970.

    `sums` are those of the last minute, as in inferd.ui.figures.window, `durations` those of its
    requests by fine bucket. Everything else that is counted, is since the version was loaded.
    """

    name: str
    version: str
    state: str
    reason: str = ""
    platform: str = ""
    backend: str = ""
    instances: int = 0
    max_batch_size: int = 0
    joined: str = ""
    joined_reason: str = ""
    born: int = 0
    success: int = 0
    failure: int = 0
    refused: int = 0
    rate: float = 0.0
    sums: list[int] = []
    durations: dict[int, int] = {}
    cache_hit: int = 0
    cache_miss: int = 0
    batch_sizes: dict[int, int] = {}
    memory: int | None = None
    last: int = 0


class StepPart(msgspec.Struct, array_like=True):
    """A step of an ensemble: how often its model was answered in the last minute, and the time."""

    model: str
    version: str
    count: int
    ns: int


class DetailPart(msgspec.Struct, array_like=True):
    """More of a model version. `queue` has the durations by bit length; None: no sequences.

    `written` are the fields of its configuration that are in its file.
    """

    name: str
    version: str
    requests: dict[int, int]
    queue: dict[int, int]
    failures: dict[str, int]
    notable: list[NotableRequest]
    sequences: int | None
    queued: int
    steps: list[StepPart]
    written: list[str]


class GpuPart(msgspec.Struct):
    """A GPU of the machine: how busy it is, from 0 to 1, and its memory in bytes."""

    name: str
    utilization: float | None
    memory: int | None
    memory_total: int | None


class ProcessPart(msgspec.Struct, array_like=True):
    """What is new in a process. `key` is another one in each, `started` is in ms since 1970.

    `seconds` are rows of the history; `minutes` are all there are, if nothing had been seen, and
    none otherwise. `dropped` lines were gone before they were asked for.
    """

    key: str
    pid: int
    started: int = 0
    second: int = 0
    cpu: float = 0.0
    memory: int = 0
    connections: int = 0
    pending: int = 0
    seconds: list[Row] = []
    minutes: list[Row] = []
    models: list[ModelPart] = []
    gone: list[tuple[str, str]] = []
    lines: list[LogLine] = []
    dropped: int = 0
    requests: list[NotableRequest] = []
    details: list[DetailPart] = []
    gpus: list[GpuPart] = []
    seen: Seen = Seen()


_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.json.Decoder(FigureQuestion)
_parts = msgspec.msgpack.Decoder(ProcessPart)


def encode_part(part: ProcessPart) -> bytes:
    """Return the part as bytes."""
    return _encoder.encode(part)


def decode_part(data: bytes) -> ProcessPart:
    """Return the part in `data`. Raises InferdError."""
    try:
        return _parts.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InferdError(f"the figures of a process cannot be read: {error}") from error


def encode_question(question: FigureQuestion) -> str:
    """Return the question as text."""
    return msgspec.json.encode(question).decode()


def decode_question(text: str) -> FigureQuestion:
    """Return the question in `text`. Raises InferdError."""
    try:
        return _questions.decode(text)
    except msgspec.MsgspecError as error:
        raise InferdError(f"no question about the figures of a process: {error}") from error
