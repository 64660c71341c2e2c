"""What inferd route counts, at /metrics: places, requests by place, HAProxy's restarts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inferd.errors import InferdError
from inferd.http.head_template import Variations
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.router import Router, path_of
from inferd.http.routes import Routes
from inferd.observe.family import Family, escaped
from inferd.observe.prometheus import CONTENT_TYPE
from inferd.route.arrangement import Arrangement, SlotUse
from inferd.route.configuration import slot_names
from inferd.route.runtime import CommandFailed, RuntimeSocket

Rows = Sequence[Mapping[str, str]]

_SUMS = {
    "requests": ("stot", "Requests sent to a place"),
    "failures": ("eresp", "Requests whose place ended, or answered nonsense, before an answer"),
    "connection_failures": ("econ", "Requests that got no connection to their place"),
    "retries": ("wretr", "Requests that were sent a second time"),
}
"""The counters by place: HAProxy's column, and what it means."""


@dataclass
class RouteCounts:
    """What inferd route counts itself."""

    restart_count: int = 0
    source_failure_count: int = 0
    supply_failure_count: int = 0
    is_source_failing: bool = False
    place_count: int = 0
    arrangement: Arrangement | None = None
    sums: dict[tuple[str, str, str], float] = field(default_factory=dict)
    last: dict[tuple[str, str, str], float] = field(default_factory=dict)


class RouteMetrics(Routes):
    """Answers with the metrics, and asks HAProxy for its own."""

    def __init__(self, counts: RouteCounts, runtime: RuntimeSocket) -> None:
        super().__init__(Router([]), forward=None, refusable="", variations=Variations(b"", ()))
        self._counts = counts
        self._runtime = runtime

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes."""
        if path_of(request.target) != b"/metrics":
            return HttpAnswer(404, [b"metrics are at /metrics\n"], b"text/plain")
        rows: Rows | None
        try:
            # What answers has no task of its own, which timeouts need.
            rows = await asyncio.create_task(self._runtime.numbers())
        except CommandFailed:
            rows = None
        text = "".join(one.text() for one in families(self._counts, rows))
        return HttpAnswer(200, [text.encode()], CONTENT_TYPE)

    def refusal(self, request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes."""
        status = error.status if isinstance(error, HttpError) else 503
        return HttpAnswer(status, [error.message.encode()], b"text/plain")


def families(counts: RouteCounts, rows: Rows | None) -> Iterable[Family]:
    """Yield all metrics; `rows` are HAProxy's, None if it does not answer."""
    yield _gauge("haproxy_up", "Whether HAProxy answers", rows is not None)
    yield _count("haproxy_restarts", "HAProxy was started again", counts.restart_count)
    yield _count(
        "source_failures", "The source did not tell the places", counts.source_failure_count
    )
    yield _count("supply_failures", "HAProxy did not take a change", counts.supply_failure_count)
    text = "Whether the source does not tell the places now"
    yield _gauge("source_failing", text, counts.is_source_failing)
    yield _gauge("places", "Places that the source has", counts.place_count)
    arrangement = counts.arrangement
    if arrangement is None:
        return
    yield _gauge("models", "Models that requests are sent to", len(arrangement.models))
    yield Family(
        "inferd_route_left_out",
        "gauge",
        "Places, and models, for which there is no slot or no group",
        [
            ('of="places"', len(arrangement.left_out)),
            ('of="models"', len(arrangement.lost_models)),
        ],
    )
    text = "Models whose newest version is not the same at all places"
    yield _gauge("mixed_models", text, len(arrangement.mixed_models))
    yield from _by_place(counts, arrangement, rows or ())


def _gauge(name: str, text: str, value: int) -> Family:
    return Family(f"inferd_route_{name}", "gauge", text, [("", int(value))])


def _count(name: str, text: str, value: float) -> Family:
    return Family(f"inferd_route_{name}_total", "counter", f"How often: {text}", [("", value)])


def _by_place(counts: RouteCounts, arrangement: Arrangement, rows: Rows) -> Iterable[Family]:
    names = {
        server: content.name
        for number, content in enumerate(arrangement.slots)
        if content.use is not SlotUse.UNUSED
        for server in slot_names(number)
    }
    up, under_way = [], []
    busy: dict[str, float] = {}
    for row in rows:
        server = row.get("svname", "")
        place = names.get(server)
        if place is None:
            continue
        # HAProxy leaves columns empty that a row has not.
        busy[place] = busy.get(place, 0.0) + float(row.get("scur") or 0)
        # The one backend with checks; the others look at it.
        if row.get("pxname") == "checks-all":
            up.append((f'place="{escaped(place)}"', float(row.get("status", "").startswith("UP"))))
    under_way = [(f'place="{escaped(place)}"', value) for place, value in busy.items()]
    yield Family("inferd_route_place_up", "gauge", "Whether a place passes its checks", up)
    yield Family("inferd_route_under_way", "gauge", "Requests under way at a place", under_way)
    note(counts, rows, names)
    for metric, (_, text) in _SUMS.items():
        samples = [
            (f'place="{escaped(place)}",protocol="{protocol}"', value)
            for (place, protocol, what), value in sorted(counts.sums.items())
            if what == metric
        ]
        yield Family(f"inferd_route_{metric}_total", "counter", text, samples)


def note(counts: RouteCounts, rows: Rows, names: Mapping[str, str]) -> None:
    """Add to the sums what HAProxy has counted since the last time.

    Those of a new HAProxy, and of a slot with another place, begin at 0 or go on: no sum falls.
    """
    now: dict[tuple[str, str, str], float] = {}
    for row in rows:
        server, backend = row.get("svname", ""), row.get("pxname", "")
        if server not in names:
            continue
        for metric, (column, _) in _SUMS.items():
            value = float(row.get(column) or 0)
            key = (backend, server, metric)
            now[key] = value
            before = counts.last.get(key, 0.0)
            # Less than before: HAProxy was started anew, and counts from 0.
            grown = value - before if value >= before else value
            protocol = "grpc" if backend.startswith("grpc") else "rest"
            where = (names[server], protocol, metric)
            counts.sums[where] = counts.sums.get(where, 0.0) + grown
    counts.last.update(now)
