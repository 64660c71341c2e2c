"""Generators: processes that send requests, and what they have measured together."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from inferd.bench.plan import (
    FromGenerator,
    LoadProgress,
    LoadSample,
    Plan,
    Point,
    PointFailed,
    Ready,
    StartPoint,
    StopPoint,
    packed,
    read_packed,
)
from inferd.bench.sweep import parts
from inferd.errors import InferdError, Unavailable

# A process imports numpy, on a machine that may be loaded by its server.
_START_S = 30.0
_LOOK_S = 0.1
_AFTER_S = 20.0
_LEAD_S = 0.3
_LEAD_PER_CONNECTION_S = 0.002
_END_S = 2.0


class Measured(NamedTuple):
    """What the generators measured at a point; it is not whole if Ctrl-C ended it."""

    samples: list[LoadSample]
    is_whole: bool


class Hooks(NamedTuple):
    """What is done while a point is measured: when that begins, when it ends, and meanwhile."""

    begin: Callable[[], None]
    end: Callable[[], None]
    progress: Callable[[float, Sequence[LoadProgress]], None]


class Generators:
    """Processes that have a plan, and measure one point after the other.

    They begin a point together, `lead_s` after it is told them: all must be ready by then.
    """

    def __init__(self, plan: Plan, count: int, lead_s: float = _LEAD_S) -> None:
        self._plan = plan
        self._lead_s = lead_s
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []
        self._messages: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        """Start the processes. Raises Unavailable."""
        try:
            for number in range(self._count):
                self._start(number)
            for _ in range(self._count):
                self._expect(Ready, time.monotonic() + _START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self.close()

    def _start(self, number: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "inferd.bench.generator.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for this process, which tells them
        )
        self._processes.append(process)
        # Pipes are read by threads: select does not take them on Windows.
        threading.Thread(target=self._read, args=(number, process), daemon=True).start()
        self._tell(process, self._plan)

    def _read(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        stream: Any = process.stdout
        while (message := read_packed(stream, FromGenerator)) is not None:
            self._messages.put((number, message))
        self._messages.put((number, None))

    def _tell(self, process: "subprocess.Popen[bytes]", message: Any) -> None:
        stream: Any = process.stdin
        try:
            stream.write(packed(message))
            stream.flush()
        except OSError:  # it has ended, which is noticed where its messages are read
            return

    def _expect(self, kind: type, deadline_s: float) -> object:
        """Return the next message of a kind. Raises Unavailable."""
        while True:
            try:
                _, message = self._messages.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                raise Unavailable("a load generator does not answer") from None
            if message is None:
                raise _ended()
            if isinstance(message, kind):
                return message

    def run(self, point: Point, hooks: Hooks) -> Measured:
        """Measure a point. Raises InferdError if no generator could send anything."""
        shares = parts(point, self._count)
        connections = max(one.concurrency for one in shares)
        at_ns = time.monotonic_ns() + int(
            (self._lead_s + connections * _LEAD_PER_CONNECTION_S) * 1e9
        )
        for process, share in zip(self._processes, shares, strict=False):
            self._tell(process, StartPoint(share, at_ns))
        waiting = _PointWait(len(shares), point, at_ns, hooks)
        is_whole = True
        while not waiting.is_done:
            try:
                self._take(waiting)
            except KeyboardInterrupt:
                # A second Ctrl-C ends everything at once.
                if not is_whole:
                    raise
                is_whole = False
                for process in self._processes:
                    self._tell(process, StopPoint())
        if waiting.failures and not waiting.samples:
            raise Unavailable(waiting.failures[0])
        return Measured(waiting.samples, is_whole)

    def _take(self, waiting: "_PointWait") -> None:
        try:
            number, message = self._messages.get(timeout=_LOOK_S)
        except queue.Empty:
            waiting.look()
            return
        if message is None:
            raise _ended()
        waiting.take(number, message)
        waiting.look()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process.stdin is not None:
                try:
                    process.stdin.close()
                except OSError:
                    continue
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()


class _PointWait:
    """What has come of the processes at one point so far."""

    def __init__(self, count: int, point: Point, at_ns: int, hooks: Hooks) -> None:
        self.samples: list[LoadSample] = []
        self.failures: list[str] = []
        self._left = count
        self._hooks = hooks
        self._at_ns = at_ns
        self._begin_ns = at_ns + int(point.warmup_s * 1e9)
        self._end_ns = self._begin_ns + int(point.seconds * 1e9)
        self._has_begun = self._has_ended = False
        self._progress: dict[int, LoadProgress] = {}

    @property
    def is_done(self) -> bool:
        """Whether all processes have said what they measured."""
        return not self._left

    def take(self, number: int, message: Any) -> None:
        """Take a message of a process."""
        if isinstance(message, LoadProgress):
            self._progress[number] = message
            share = (time.monotonic_ns() - self._at_ns) / max(1, self._end_ns - self._at_ns)
            self._hooks.progress(share, list(self._progress.values()))
        elif isinstance(message, LoadSample):
            self.samples.append(message)
            self._left -= 1
        elif isinstance(message, PointFailed):
            self.failures.append(message.reason)
            self._left -= 1

    def look(self) -> None:
        """Do what is due by now. Raises Unavailable where processes say nothing any more."""
        now_ns = time.monotonic_ns()
        if not self._has_begun and now_ns >= self._begin_ns:
            self._has_begun = True
            self._hooks.begin()
        if self._has_begun and not self._has_ended and (now_ns >= self._end_ns or self.is_done):
            self._has_ended = True
            self._hooks.end()
        if now_ns > self._end_ns + _AFTER_S * 1e9:
            raise Unavailable("a load generator does not answer")


def _ended() -> InferdError:
    return Unavailable("a load generator has ended; what it said is above")
