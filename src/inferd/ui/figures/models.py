"""ModelFigures: what each model version of this process does, sampled once a second.

What a second costs depends on how many versions were asked in it: the others are only looked at,
for less than a microsecond each. Rows are made anew when somebody looks, and only where something
has changed; each change has a number.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from inferd.aio.inline import groups
from inferd.core.interfaces import ProcessInstance, SequenceKeeper
from inferd.core.metadata import ModelState
from inferd.engine.loading.catalog import NO_VERSION, UNLOADED, Catalog, Version
from inferd.engine.serving.served import Served
from inferd.observe.stats import FINE_BUCKETS, NEVER_NS, Counts, fine_bound, fine_bucket
from inferd.ui.figures.history import Row
from inferd.ui.figures.part import DetailPart, ModelPart, StepPart
from inferd.ui.figures.percentiles import Durations, add_to, difference, percentiles
from inferd.ui.figures.window import NOTHING, MinuteWindow, sums_of

SLOW_NS = 1_000_000_000
"""What is slow where there are too few requests to tell."""

LEAST_COUNT = 20
"""So many requests in the last minute tell what is slow."""

MOST_GONE = 10_000

# One list for all versions that were never asked: comparing with it costs nothing new.
_UNUSED = [0] * FINE_BUCKETS

Key = tuple[str, str]


class _Track:
    """What has been seen of a version that serves; `counted` are its successes, failures, ..."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.counted = self.failures = self.refused = 0
        self.before = _UNUSED
        self.sums = NOTHING
        self.window: MinuteWindow | None = None


class _MadeRow(NamedTuple):
    """A row, the number of the change with which it was made, and what it was made from."""

    number: int
    marks: tuple[object, ...]
    part: ModelPart


class ModelFigures:
    """The versions in `catalog`; `on_new` is told of each that begins to serve.

    `memory_of` returns the bytes that the workers of a version have, None without workers.
    """

    def __init__(
        self,
        catalog: Catalog,
        on_new: Callable[[Served], None] = lambda _: None,
        memory_of: Callable[[Served], int | None] = lambda _: None,
    ) -> None:
        self.number = 0
        """That of the last change."""
        self._catalog = catalog
        self._on_new = on_new
        self._memory_of = memory_of
        self._tracks: dict[Key, _Track] = {}
        self._active: set[Key] = set()
        self._touched: set[Key] = set()
        self._rows: dict[Key, _MadeRow] = {}
        self._gone: dict[Key, int] = {}
        # A refresh lets others have turns in its midst; two at once would miss what changed then.
        self._lock = asyncio.Lock()

    def notice(self, served: Served) -> None:
        """Take note of a version that begins to serve, from its first request on."""
        key = (served.name, served.version)
        track = self._tracks.get(key)
        if track is None or track.counts is not served.counts:
            self._tracks[key] = _Track(served.counts)
            served.counts.slow_ns = SLOW_NS
            self._on_new(served)

    async def sample(self, now: int) -> Row:
        """Note what has been counted since the last time; `now` is in seconds since 1970.

        Returns the counts of all versions, and how many requests wait. Other work has its turns
        between the versions that were asked.
        """
        success = failure = refused = queued = count = 0
        answered: list[tuple[Key, _Track]] = []
        tracks = self._tracks
        for name, model in self._catalog.models.items():
            for version, served in model.ready.items():
                count += 1
                counts = served.counts
                track = tracks.get((name, version))
                # The same name and version, loaded again: its counts begin at 0.
                if track is None or track.counts is not counts:
                    self.notice(served)
                    track = tracks[name, version]
                queued += served.scheduler.pending_count
                failures = sum(counts.fail_counts.values())
                # One comparison tells an idle version.
                if counts.success_count != track.counted:
                    success += counts.success_count - track.counted
                    track.counted = counts.success_count
                    answered.append(((name, version), track))
                if failures != track.failures or counts.refused_count != track.refused:
                    failure += failures - track.failures
                    refused += counts.refused_count - track.refused
                    track.failures, track.refused = failures, counts.refused_count
                    self._touched.add((name, version))
        # As many as before: the same ones, since each new one was noticed.
        if count != len(tracks):
            self._forget()
        durations: dict[int, int] = {}
        for group in groups(answered):
            for key, track in group:
                self._note(key, track, now, durations)
            await asyncio.sleep(0)
        self._move(now)
        return Row(now, success, failure, refused, queued=queued, durations=durations)

    def _note(self, key: Key, track: _Track, now: int, durations: dict[int, int]) -> None:
        """Note the answered requests of a version."""
        counts = track.counts
        more = difference(counts.request_histogram, track.before)
        # Counting goes on in the original.
        track.before = counts.request_histogram.copy()
        if track.window is None:
            # Made when it is asked first: most of a thousand models are idle.
            track.window = MinuteWindow(now - 1, track.sums)
        track.sums = sums_of(counts)
        track.window.add(now, track.sums, more)
        add_to(durations, more)
        self._touched.add(key)
        self._active.add(key)

    def _move(self, now: int) -> None:
        """Have the windows of versions that were asked in the last minute end now."""
        for key in list(self._active):
            track = self._tracks.get(key)
            if track is None or track.window is None:
                self._active.discard(key)
                continue
            if track.window.move(now):
                self._touched.add(key)
            if track.window.is_empty:
                self._active.discard(key)
                track.window = None
                track.counts.slow_ns = SLOW_NS
            elif key in self._touched:
                track.counts.slow_ns = _slow_ns(track.window.durations)

    def _forget(self) -> None:
        """Forget versions that do not serve any more."""
        there = {
            (name, version)
            for name, model in self._catalog.models.items()
            for version in model.ready
        }
        for key in self._tracks.keys() - there:
            del self._tracks[key]
            self._active.discard(key)

    async def changed(self, after: int, now: int) -> tuple[list[ModelPart], list[Key]]:
        """Return the rows that have changed since the change `after`, and what is gone since.

        Other work has its turns between the versions that have changed.
        """
        async with self._lock:
            await self._refresh(now)
        rows = [row.part for row in self._rows.values() if row.number > after]
        return rows, [key for key, number in self._gone.items() if number > after]

    async def _refresh(self, now: int) -> None:
        """Make anew the rows of what has changed."""
        rows, seen = self._rows, set()
        # Exchanged first: what is counted while others have their turn is for the next time.
        touched, self._touched = self._touched, set()
        changed: list[tuple[Key, Version, tuple[object, ...]]] = []
        for key, version in self._versions():
            seen.add(key)
            marks = _marks(version)
            row = rows.get(key)
            if row is None or key in touched or row.marks != marks:
                changed.append((key, version, marks))
        if len(rows) != len(seen) or rows.keys() != seen:
            self._drop(rows.keys() - seen)
        for group in groups(changed):
            for key, version, marks in group:
                self.number += 1
                rows[key] = _MadeRow(self.number, marks, self._part(key, version, now))
                self._gone.pop(key, None)
            await asyncio.sleep(0)

    def _drop(self, keys: Iterable[Key]) -> None:
        """Drop the rows of versions that nobody knows any more."""
        for key in keys:
            del self._rows[key]
            self.number += 1
            self._gone[key] = self.number
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _part(self, key: Key, version: Version, now: int) -> ModelPart:
        served = version.served
        state, reason = version.state.value, version.reason
        if served is None:
            return ModelPart(*key, state, reason)
        # A version that serves, but whose workers do not start.
        if stuck := served.unavailable_reason:
            state, reason = ModelState.UNAVAILABLE.value, stuck
        counts, config, joining = served.counts, served.config, served.joining
        statistics = counts.statistics("", "")
        track = self._tracks.get(key)
        window = track.window if track is not None and track.counts is counts else None
        inferences = statistics.inference_stats
        return ModelPart(
            *key,
            state,
            reason or served.why_isolated,
            served.platform,
            config.backend,
            served.instances.total if served.instances is not None else 0,
            config.max_batch_size,
            joining.state if joining.reason else "",
            joining.reason,
            counts.born,
            inferences.success.count,
            inferences.fail.count,
            counts.refused_count,
            window.rate(now) if window is not None else 0.0,
            list(window.last_minute()) if window is not None else [],
            window.durations.copy() if window is not None else {},
            inferences.cache_hit.count,
            inferences.cache_miss.count,
            {row.batch_size: row.compute_infer.count for row in statistics.batch_stats},
            self._memory_of(served),
            statistics.last_inference,
        )

    def detail(self, name: str, version: str) -> DetailPart | None:
        """Return more of a version, without its notable requests; None if it does not serve."""
        model = self._catalog.models.get(name)
        served = model.ready.get(version) if model is not None else None
        if served is None:
            return None
        counts = served.counts
        return DetailPart(
            name,
            version,
            {at: count for at, count in enumerate(counts.request_histogram) if count},
            {at: count for at, count in enumerate(counts.queue_histogram) if count},
            dict(counts.fail_counts),
            [],
            _sequence_count(served),
            served.scheduler.pending_count,
            list(map(self._step, served.steps)),
            sorted(served.config.written),
        )

    def _step(self, served: Served) -> StepPart:
        track = self._tracks.get((served.name, served.version))
        window = track.window if track is not None else None
        sums = window.last_minute() if window is not None else NOTHING
        ns = sums.queue + sums.input + sums.infer + sums.output + sums.handover
        return StepPart(served.name, served.version, sums.runs, ns)

    def states(self) -> Counter[str]:
        """Return how many versions are ready, loading, failed and unloaded."""
        return Counter(_state_of(version) for _, version in self._versions())

    def failed(self) -> list[tuple[str, str, str]]:
        """Return name, version and reason of those that have failed."""
        return [
            (*key, version.reason)
            for key, version in self._versions()
            if _state_of(version) == "failed"
        ]

    def _versions(self) -> Iterator[tuple[Key, Version]]:
        """Yield all versions that there are, serving or not."""
        for name, model in self._catalog.models.items():
            for number, version in model.versions.items():
                yield (name, "" if number == NO_VERSION else str(number)), version

    def worker_pids(self) -> list[int]:
        """Return the numbers of the worker processes of all versions."""
        found = self._catalog.with_workers()
        return [pid for served in found for pid in pids_of(served)]


def pids_of(served: Served) -> list[int]:
    """Return the numbers of the worker processes of a version."""
    return [one.pid for one in served.remote() if isinstance(one, ProcessInstance) and one.pid]


def _sequence_count(served: Served) -> int | None:
    """Return how many sequences live in a version, None if that is not known or it has none."""
    scheduler = served.scheduler
    if served.has_sequences and isinstance(scheduler, SequenceKeeper):
        return scheduler.sequence_count
    return None


def _state_of(version: Version) -> str:
    if version.served is not None:
        return "ready"
    if version.state in (ModelState.LOADING, ModelState.UNLOADING):
        return "loading"
    return "unloaded" if version.reason == UNLOADED else "failed"


def _marks(version: Version) -> tuple[object, ...]:
    """Return what tells, compared with its like, that a row is to be made anew."""
    served = version.served
    if served is None:
        return (version.state, version.reason)
    instances = served.instances
    return (
        version.reason,
        # Only these can be stuck; asking all of a thousand versions each second would cost.
        served.unavailable_reason if served.steps or served.remote() else "",
        served.joining.state,
        served.joining.reason,
        # Loaded again, it is another object, even if nothing else differs.
        id(served),
        instances.total if instances is not None else 0,
    )


def _slow_ns(durations: Durations) -> int:
    """Return beyond which time a request is one of the slowest hundredth."""
    if sum(durations.values()) < LEAST_COUNT:
        return SLOW_NS
    [p99] = percentiles(durations, (0.99,))
    # The end of the bucket: what lies within the same one is as slow as the 99th percentile.
    return NEVER_NS if p99 is None else fine_bound(fine_bucket(p99) + 1)
