"""Numbers: what one process of a server has counted, in a form that can be sent and added up.

The processes of a server tell each other these numbers, and the process that starts them keeps the
numbers of those that have ended, so that what the server reports is the sum. Counts are added.
What holds for now, such as the requests that wait, ends with its process. Quantiles cannot be
added; the durations that they come from are.

Neither numpy nor a model's framework is imported here: whoever keeps numbers runs no models.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import fsum, isfinite
from statistics import fmean
from typing import Annotated, Any, Final, TypeVar

import msgspec

from inferd.errors import InferdError
from inferd.observe.family import MAX_FAMILIES, MAX_METRICS, Across
from inferd.observe.statistics import Duration, ResponseStatistics
from inferd.observe.stats import BUCKETS, FINE_BUCKETS, MAX_BATCH_ROWS, MAX_RESPONSE_ROWS
from inferd.observe.summary import SUMMARY_BUCKETS, is_recent

# A server that loads ever new names must not grow for ever: these are kept in a process that never
# restarts.
MAX_ENDED_ROWS: Final = 10_000
"""How many model versions the numbers of ended processes have: those that were loaded last."""

# Sent by other processes: a number beyond the end would fail in the middle of adding.
Bucket = Annotated[int, msgspec.Meta(ge=0, lt=BUCKETS)]
FineBucket = Annotated[int, msgspec.Meta(ge=0, lt=FINE_BUCKETS)]
SummaryBucket = Annotated[int, msgspec.Meta(ge=0, lt=SUMMARY_BUCKETS)]
Buckets = dict[Bucket, int]
Samples = dict[int, dict[SummaryBucket, int]]
"""How many of a summary's durations there were, by the step in which they were seen last."""

Total = list[int | float]
"""Numbers whose sum is meant. Sums of floats are kept exact, or they might fall by a last bit."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


# Field names would be most of what is sent, four times a second for each model version.
class Phased(msgspec.Struct, array_like=True, gc=False):
    """See Phases."""

    count: int
    queue_ns: int
    input_ns: int
    infer_ns: int
    output_ns: int
    handover_ns: int


class Counted(msgspec.Struct, array_like=True, gc=False):
    """What is added up of a model version, by the names that Counts has for it.

    `requests` is the histogram of whole requests, `histograms` are the others of Counts, all
    without the buckets that are 0. `samples` are those of SummaryCounts' summaries, then of its
    cache_summaries; none without summaries.
    """

    alone: dict[int, Phased]
    shared: dict[int, Phased]
    shared_requests: dict[int, Phased]
    failed: dict[int, Phased]
    other_inference_count: int
    failures: dict[int, Duration]
    fail_counts: dict[str, int]
    refused_count: int
    rerun_count: int
    comparison_count: int
    disagreement_count: int
    cache_hits: dict[int, Duration]
    cache_miss: Duration
    responses: Annotated[list[ResponseStatistics], msgspec.Meta(max_length=MAX_RESPONSE_ROWS)]
    requests: dict[FineBucket, int]
    histograms: Annotated[list[Buckets], msgspec.Meta(min_length=4, max_length=4)]
    samples: Annotated[list[Samples], msgspec.Meta(max_length=7)]


class Amount(msgspec.Struct, array_like=True, gc=False):
    """A number, or with `bounds` a histogram; `set_ns` is when it was set last, 0 for never."""

    total: Total
    set_ns: int = 0
    bounds: list[float] = []
    counts: list[int] = []

    def __post_init__(self) -> None:
        """Raise ValueError for a histogram that cannot be."""
        if self.counts and len(self.counts) != len(self.bounds) + 1:
            msg = f"a histogram has {len(self.bounds)} bounds and {len(self.counts)} counts"
            raise ValueError(msg)


class ModelNumbers(msgspec.Struct, array_like=True, gc=False):
    """What is reported of one model version: see Observed. `last_ns` is since 1970.

    `first_responses` are those of Counts.
    """

    counted: Counted
    last_ns: int = 0
    first_responses: Amount | None = None
    pending_count: int = 0
    load_s: float = 0.0
    is_on_gpu: bool = False
    is_cached: bool = False
    is_joined: bool | None = None
    is_isolated: bool = False


class EncodedNumbers(msgspec.Struct, array_like=True, gc=False):
    """The encoded numbers of a model version, which was loaded by change `born` of the server.

    Numbers of versions that were loaded by different changes have nothing to do with each other.
    """

    name: str
    version: str
    born: int
    # Passed on and kept without decoding: most of it is never looked at.
    row: msgspec.Raw

    def numbers(self) -> ModelNumbers:
        """Return the ModelNumbers. Raises InferdError."""
        return _decoded(_numbers_of, self.row)


class FamilyNumbers(msgspec.Struct, array_like=True, gc=False):
    """A Family that is not a model's."""

    name: str
    kind: str
    help: str
    across: Across
    samples: dict[str, Total]


class CustomNumbers(msgspec.Struct, array_like=True, gc=False):
    """A CustomFamily, with its metrics by their labels."""

    name: str
    kind: str
    help: str
    metrics: dict[str, Amount]


class ProcessNumbers(msgspec.Struct, array_like=True, gc=False):
    """All numbers of a process. `calls` are the calls of APIs that count them, by their names."""

    models: list[EncodedNumbers] = []
    families: list[FamilyNumbers] = []
    customs: list[CustomNumbers] = []
    calls: dict[str, Duration] = {}


_encoder = msgspec.msgpack.Encoder()
_numbers_of = msgspec.msgpack.Decoder(ModelNumbers)
_process_of = msgspec.msgpack.Decoder(ProcessNumbers)


def encode(numbers: ModelNumbers | ProcessNumbers) -> bytes:
    """Return `numbers` as bytes."""
    return _encoder.encode(numbers)


def decode(data: bytes) -> ProcessNumbers:
    """Return the numbers in `data`; those of a model are looked at when asked for.

    Raises InferdError.
    """
    return _decoded(_process_of, data)


def _decoded(decoder: "msgspec.msgpack.Decoder[S]", data: bytes | msgspec.Raw) -> S:
    try:
        return decoder.decode(data)
    # Nested deeply enough, even data that are skipped raise it.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InferdError(f"the numbers of a process cannot be read: {error}") from error


def add(one: ModelNumbers, other: ModelNumbers) -> ModelNumbers:
    """Return the sum of the numbers that two processes have of a model version."""
    joined = [each for each in (one.is_joined, other.is_joined) if each is not None]
    return ModelNumbers(
        _limited(_sum(one.counted, other.counted)),
        max(one.last_ns, other.last_ns),
        _amount(one.first_responses, other.first_responses),
        one.pending_count + other.pending_count,
        # All processes load the same, so the slowest tells how long the model took.
        max(one.load_s, other.load_s),
        one.is_on_gpu or other.is_on_gpu,
        one.is_cached or other.is_cached,
        # Joined everywhere, or it is not: one process that found a difference is reason enough.
        all(joined) if joined else None,
        one.is_isolated or other.is_isolated,
    )


def added(entries: Sequence[EncodedNumbers]) -> ModelNumbers:
    """Return the sum of what processes have of a model version; the newest load alone counts.

    Raises InferdError.
    """
    # Versions loaded by earlier changes are other models under the same name.
    born = max(entry.born for entry in entries)
    return reduce(add, [entry.numbers() for entry in entries if entry.born == born])


def added_families(processes: Sequence[ProcessNumbers]) -> list[FamilyNumbers]:
    """Return the families of all processes; each says how."""
    found: dict[str, tuple[FamilyNumbers, dict[str, list[Total]]]] = {}
    for family in (each for process in processes for each in process.families):
        _, samples = found.setdefault(family.name, (family, {}))
        for labels, total in family.samples.items():
            samples.setdefault(labels, []).append(total)
    return [
        FamilyNumbers(
            family.name,
            family.kind,
            family.help,
            family.across,
            {labels: _ACROSS[family.across](totals) for labels, totals in samples.items()},
        )
        for family, samples in found.values()
    ]


def added_customs(processes: Sequence[ProcessNumbers]) -> list[CustomNumbers]:
    """Return the metrics of models in all processes.

    Counters and histograms are added, and so are gauges that were never set. One that was set is
    what it was set to last, wherever that was.
    """
    found: dict[str, CustomNumbers] = {}
    for family in (each for process in processes for each in process.customs):
        empty = CustomNumbers(family.name, family.kind, family.help, {})
        known = found.setdefault(family.name, empty)
        # Two processes may define a name as different kinds at the same time; the first counts, as
        # in one process.
        if known.kind == family.kind:
            for labels, amount in family.metrics.items():
                known.metrics[labels] = _amount(known.metrics.get(labels), amount) or amount
    return list(found.values())


def added_calls(processes: Sequence[ProcessNumbers]) -> dict[str, Duration]:
    """Return the calls of all processes."""
    none: dict[str, Duration] = {}
    return reduce(_sum, [process.calls for process in processes], none)


def exact(numbers: Iterable[int | float]) -> Total:
    """Return few numbers that have exactly the same sum as `numbers`: one if they are integers."""
    found = list(numbers)
    # Integers are exact by themselves, and stay integers in the text.
    if all(isinstance(number, int) for number in found):
        return [sum(found)]
    parts: list[float] = []
    for number in map(float, found):
        left = number
        smaller = []
        # Shewchuk's algorithm, as in math.fsum, but keeping its parts: a rounded sum that is added
        # to again could be less than one reported before, and a counter must never fall.
        for part in parts:
            both = left + part
            # What of the two is lost in `both`, exactly.
            back = both - left
            if lost := (left - (both - back)) + (part - back):
                smaller.append(lost)
            left = both
        # The error terms of infinities are NaN.
        if not isfinite(left):
            return [sum(found)]
        parts = [*smaller, left]
    return [*parts]


def shown(total: Total) -> int | float:
    """Return the sum that is meant."""
    return sum(total) if len(total) < 2 else fsum(total)  # fsum alone would make floats of integers


def merged(ended: Sequence[bytes], now_s: Callable[[], float] = time.monotonic) -> bytes:
    """Return as the numbers of one process what is to be kept of several that have ended.

    The result may be given again, first, together with those that end later: it keeps as many model
    versions and metrics as there may be. Raises InferdError.
    """
    processes = [decode(one) for one in ended]
    by_version: dict[tuple[str, str], list[EncodedNumbers]] = {}
    for entry in (each for process in processes for each in process.models):
        by_version.setdefault((entry.name, entry.version), []).append(entry)
    now = now_s()
    models = [
        EncodedNumbers(
            name, version, max(one.born for one in entries), _lasting(added(entries), now)
        )
        for (name, version), entries in by_version.items()
    ]
    # Newest first, so the limit drops those that were loaded longest ago.
    models.sort(key=lambda entry: -entry.born)
    # What holds for now has ended with its process.
    customs = [family for family in added_customs(processes) if family.kind != "gauge"]
    for family in customs:
        family.metrics = _first_of(family.metrics, MAX_METRICS)
    families = [each for each in added_families(processes) if each.across not in ("level", "mean")]
    return encode(
        ProcessNumbers(
            models[:MAX_ENDED_ROWS], families, customs[:MAX_FAMILIES], added_calls(processes)
        )
    )


def _lasting(numbers: ModelNumbers, now_s: float) -> msgspec.Raw:
    """Return, encoded, what is kept of a version whose process has ended."""
    counted = numbers.counted
    counted.samples = [
        {step: found for step, found in samples.items() if is_recent(step, now_s)}
        for samples in counted.samples
    ]
    return msgspec.Raw(encode(ModelNumbers(counted, numbers.last_ns, numbers.first_responses)))


def _sum(one: T, other: T) -> T:
    """Return the sum of integers, or of what consists of them and is built alike."""
    total: Any
    if isinstance(one, int):
        # T is an int here, which mypy does not see through isinstance of a type variable.
        total = one + other  # type: ignore[operator]
    elif isinstance(one, dict):
        assert isinstance(other, dict)
        # A key that is in one of them alone keeps its value, which is not copied: nobody adds to it
        # in place.
        total = one | other
        for key in one.keys() & other.keys():
            total[key] = _sum(one[key], other[key])
    elif isinstance(one, list):
        assert isinstance(other, list)
        # Streams of different lengths have rows for different positions.
        few, many = sorted((one, other), key=len)
        total = [*map(_sum, few, many), *many[len(few) :]]
    else:
        parts = map(msgspec.structs.astuple, (one, other))  # type: ignore[arg-type]
        total = type(one)(*map(_sum, *parts))
    return total  # type: ignore[no-any-return]


def _limited(counted: Counted) -> Counted:
    """Return `counted` with as many rows as a process has; further ones are in row 0."""
    for name in ("alone", "shared", "shared_requests", "failed", "failures", "cache_hits"):
        rows = getattr(counted, name)
        if len(rows) > MAX_BATCH_ROWS + 1:
            setattr(counted, name, first := _first_of(rows, MAX_BATCH_ROWS))
            for size, row in rows.items():
                if size not in first:
                    first[0] = _sum(first[0], row) if 0 in first else row
                    # Row 0 has lost its size, so the inferences in it must be kept apart, as Counts
                    # does.
                    if name in ("alone", "shared_requests"):
                        counted.other_inference_count += size * row.count
    return counted


def _amount(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return one or other
    if one.set_ns or other.set_ns:
        # A gauge that was set is not a sum: the latest value counts.
        return max(one, other, key=lambda each: each.set_ns)
    if one.bounds != other.bounds:
        return one  # as in one process, where those that come first count
    total = exact([*one.total, *other.total])
    return Amount(total, 0, one.bounds, _sum(one.counts, other.counts))


def _first_of(rows: Mapping[Any, T], count: int) -> dict[Any, T]:
    return dict(list(rows.items())[:count])


_ACROSS: Mapping[Across, Callable[[list[Total]], Total]] = {
    "count": lambda totals: exact(number for total in totals for number in total),
    "level": lambda totals: exact(number for total in totals for number in total),
    "mean": lambda totals: [fmean(map(shown, totals))],
    "most": lambda totals: [max(map(shown, totals))],
    "least": lambda totals: [min(map(shown, totals))],
}
