"""Results as text: a table, and what is to be said of its rows."""

from collections.abc import Iterator, Sequence

from inferd.bench.figures import Estimate
from inferd.bench.result import PointResult, RunResult
from inferd.bench.saturation import Trust

HEAD = ("load", "req/s", "p50", "p95", "p99", "queue", "model", "CPU", "errors")
UNKNOWN = "?"
MOST_ERRORS = 3


def title(result: RunResult) -> str:
    """Return what was measured, in a line."""
    version = f" version {result.version}" if result.version else ""
    processes = "1 process" if result.processes == 1 else f"{result.processes} processes"
    return f"{result.model}{version} at {result.url}, {result.request}; load from {processes}"


def rows(points: Sequence[PointResult]) -> list[tuple[str, ...]]:
    """Return a row for each point."""
    return [_row(one) for one in points]


def _row(one: PointResult) -> tuple[str, ...]:
    # A generator at its limit has measured that the server can do at least this much.
    least = "≥ " if one.verdict.trust is Trust.NONE else ""
    server = one.server
    return (
        one.name,
        f"{least}{one.per_s:,.0f}" if one.per_s >= 100 else f"{least}{one.per_s:.3g}",
        *(_cell(one, percentile) for percentile in (50, 95, 99)),
        duration_text(server.queue_us) if server else "-",
        duration_text(server.input_us + server.infer_us + server.output_us) if server else "-",
        duration_text(one.cpu_us) if one.cpu_us is not None else "-",
        _errors_cell(one),
    )


def _cell(one: PointResult, percentile: float) -> str:
    if one.latency is None:
        return UNKNOWN
    estimate = one.latency.at(percentile)
    return estimate_text(estimate) if estimate else "-"


def estimate_text(estimate: Estimate) -> str:
    """Return a value in ms with how far off it may be, if that is 1 % or more: "2.35 ±4%"."""
    share = estimate.error
    text = f"{estimate.value / 1e3:.3g}"
    return f"{text} ±{share:.0%}" if share >= 0.01 else text


def duration_text(microseconds: float) -> str:
    """Return a time in ms as it fits: three digits, but no less than a microsecond."""
    return f"{microseconds / 1e3:.3g}" if microseconds >= 0.5 else "0"


def _errors_cell(one: PointResult) -> str:
    if not one.error_count:
        return "-"
    share = one.error_count / max(1, one.error_count + one.answered)
    return f"{one.error_count} ({share:.1%})"


def remarks(result: RunResult) -> Iterator[str]:
    """Yield what is to be said of the points: what cannot be trusted, and what went wrong."""
    yield "times are in ms; ± is what a percentile may be off, with 95 % confidence"
    if any(one.server for one in result.points):
        yield "queue, model: on average, as the server's statistics say"
    if any(one.cpu_us is not None for one in result.points):
        yield "CPU: of the server's processes, for a request"
    for one in result.points:
        for text in _remarks_of(one):
            yield f"{one.name}: {text}"
    for one in result.points:
        if one.first is not None and (first := one.first.at(50)) is not None:
            late = one.first.at(99)
            more = f", p99 {estimate_text(late)}" if late else ""
            yield (
                f"{one.name}: first answer after {estimate_text(first)}{more}; "
                f"{one.answers_per_request:.3g} answers a request"
            )
    if not result.is_whole:
        yield "interrupted: what was measured until then"


def _remarks_of(one: PointResult) -> Iterator[str]:
    if one.verdict.trust is Trust.NONE:
        yield f"no latency of the server: {one.verdict.reason}"
    elif one.verdict.reason:
        yield one.verdict.reason
    yield from one.notes
    for text, count in list(one.errors.items())[:MOST_ERRORS]:
        yield f"{count} times: {text}"
