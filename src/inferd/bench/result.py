"""What was measured: a result for each point, as tables, pages and JSON have it."""

import msgspec

from inferd.bench.figures import Distribution
from inferd.bench.phases import ServerPhases
from inferd.bench.saturation import TrustVerdict

FORMAT = 1
"""The version of the JSON document; fields are added without changing it."""


class PointResult(msgspec.Struct, frozen=True):
    """A load and what came of it.

    `latency` is None where the generator measured itself more than the server: the `verdict` says
    why. `first` is the time to the first answer of a stream. `cpu_us` is the server's CPU time for
    a request, None if it is not on this machine.
    """

    name: str
    concurrency: int
    rate: float
    seconds: float
    answered: int
    per_s: float
    errors: dict[str, int]
    verdict: TrustVerdict
    latency: Distribution | None
    first: Distribution | None = None
    answers_per_request: float = 0.0
    server: ServerPhases | None = None
    cpu_us: float | None = None
    notes: list[str] = []
    is_whole: bool = True

    @property
    def error_count(self) -> int:
        """How many requests had no answer, or an error."""
        return sum(self.errors.values())


class RunResult(msgspec.Struct, frozen=True):
    """All points of a run, and what was loaded with what."""

    model: str
    version: str
    url: str
    server: str
    request: str
    """What is sent, in words: inputs with datatypes and dims, and how."""
    processes: int
    cores: int
    began: str
    points: list[PointResult]
    is_whole: bool = True
    format: int = FORMAT


def as_json(result: RunResult) -> bytes:
    """Return a result as JSON."""
    return msgspec.json.encode(result) + b"\n"
