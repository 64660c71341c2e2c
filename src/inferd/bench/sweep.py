"""Which loads are measured, one after the other: ranges and lists as people write them."""

from collections.abc import Iterable, Iterator, Sequence

from inferd.bench.plan import Point
from inferd.errors import InvalidConfig

MOST_POINTS = 200
_LAST_S = 0.1  # for the last of recorded requests


def numbers(text: str, option: str) -> list[float]:
    """Return what "1,2,8", "1:64" (doubling) and "10:100:10" (in steps) say.

    Raises InvalidConfig, which names `option`.
    """
    found: list[float] = []
    for part in text.split(","):
        found += _range(part.strip(), text, option)
        if len(found) > MOST_POINTS:
            raise InvalidConfig(f"{option} {text} are more than {MOST_POINTS} loads")
    if any(not 0 < one < 1e9 for one in found):
        raise InvalidConfig(f"{option} {text}: each is to be more than 0, and less than 1e9")
    return found


def _range(part: str, text: str, option: str) -> Iterator[float]:
    ends = part.split(":")
    try:
        values = [float(one) for one in ends]
    except ValueError:
        values = []
    # NaN, which float() reads.
    if not 1 <= len(values) <= 3 or any(one != one for one in values):
        msg = f"{option} is '{text}', expected as in 8, or 1,2,8, or 1:64 (doubling), or 10:100:10"
        raise InvalidConfig(msg)
    first, last = values[0], values[min(1, len(values) - 1)]
    if len(values) < 2:
        yield first
        return
    step = values[2] if len(values) == 3 else 0.0
    if last < first or first <= 0 or step < 0 or (len(values) == 3 and not step):
        msg = f"{option} {text}: a range goes up from more than 0, in steps of more than 0"
        raise InvalidConfig(msg)
    at, count = first, 0
    # Steps of 0.1 add up to a little more than the end.
    while at <= last * (1 + 1e-9) and count <= MOST_POINTS:
        yield at
        at = at + step if step else at * 2
        count += 1


def concurrencies(text: str, base: Point) -> list[Point]:
    """Return a point for each number of requests at a time. Raises InvalidConfig."""
    found = numbers(text, "--concurrency")
    if any(one != int(one) for one in found):
        raise InvalidConfig(f"--concurrency {text}: each is to be a whole number")
    return [_with(base, concurrency=int(one)) for one in found]


def rates(text: str, base: Point) -> list[Point]:
    """Return a point for each number of requests a second. Raises InvalidConfig."""
    return [_with(base, rate=one) for one in numbers(text, "--rate")]


def speeds(text: str, times_s: Sequence[float], base: Point) -> list[Point]:
    """Return a point for each speed at which recorded requests are sent. Raises InvalidConfig."""
    if not times_s:
        msg = "--speed: the requests of the file have no times; a payload log has them"
        raise InvalidConfig(msg)
    offsets = [one - times_s[0] for one in times_s]
    found = []
    for speed in numbers(text, "--speed"):
        seconds = offsets[-1] / speed + _LAST_S
        rate = len(offsets) / seconds
        found.append(
            _with(base, offsets_s=offsets, speed=speed, rate=rate, seconds=seconds, warmup_s=0.0)
        )
    return found


def parts(point: Point, count: int) -> list[Point]:
    """Return what each of `count` processes does of a point; some may have nothing to do."""
    if not point.concurrency:
        share = max(1, point.connections // count)
        return [_with(point, part=one, parts=count, connections=share) for one in range(count)]
    # A process without a request to send would only take a core.
    count = min(count, point.concurrency)
    return [
        _with(
            point,
            part=one,
            parts=count,
            concurrency=point.concurrency // count + (one < point.concurrency % count),
        )
        for one in range(count)
    ]


def total_seconds(points: Iterable[Point]) -> float:
    """Return how long all points take."""
    return sum(point.warmup_s + point.seconds for point in points)


def _with(point: Point, **changes: object) -> Point:
    import msgspec

    return msgspec.structs.replace(point, **changes)
