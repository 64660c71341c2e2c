"""Supervisor: keeps one worker process running.

When the process ends, another is started: at once the first time, then with growing delays, at last
once a minute. If it was ended by its requests, the delay stays within seconds: these may be few
among many good ones. A start takes as long as the model's initialize, so it runs in a thread; from
then on the event loop reads what the process sends.
"""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from inferd.backends.worker.lines import WorkerLines
from inferd.backends.worker.link import CLOSED, Link, LinkClosed
from inferd.backends.worker.plan import WorkerPlan
from inferd.backends.worker.process import WorkerProcess
from inferd.backends.worker.under_way import Ahead
from inferd.errors import BackendFailed, InferdError, Unavailable, foreign_text
from inferd_worker import packet

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferd.backends.worker.document import Started

log = logging.getLogger("inferd.model")

FINALIZE_S = 30.0
"""How long a model may take to finalize if no time is given."""

GRACE_S = 1.0
"""How long a process may take to end after its socket has closed."""

CALM_S = 10.0
"""A process that lived this long, or has answered, does not count as a failed start."""

FIRST_DELAY_S, MOST_DELAY_S = 0.25, 60.0

MOST_PAUSE_S = 2.0
"""The longest delay after processes that ended with requests in them, without any answer."""

PATIENCE = 3
"""After this many failed starts in a row, requests are refused until a process has come up."""

_DOUBLINGS = 10


class Supervisor:
    """The life of one worker process; subclasses define its purpose.

    `is_free`, `running_count` and `on_change` are those of AsyncInstance.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        self.on_change: Callable[[], None] = lambda: None
        self.is_free = False
        self.running_count = 0
        self.unavailable_reason = ""
        self._home: asyncio.AbstractEventLoop | None = None
        self.reads_on: asyncio.AbstractEventLoop | None = None  # the same; None while a thread does
        self._process: WorkerProcess | None = None
        self._link: Link | None = None
        self._started: Started | InferdError | None = None
        self._seen: frozenset[str] | None = None  # the files, at the first start
        self._has_answered = False
        self._failures = 0  # failed starts in a row, or processes that soon ended by themselves
        self._ends = 0  # processes in a row that were soon ended by their requests
        self.lines = WorkerLines(plan.model)
        self._born_s = 0.0
        self._is_closing = False
        self.ahead = Ahead()
        self._is_going = False  # its process has ended or is about to: it takes no executions
        self._closed = threading.Event()
        self._closed_later: asyncio.Future[None] | None = None
        self._waiting: list[Callable[[], None]] = []  # each to be called after a change

    @property
    def pid(self) -> int:
        """The number of the worker process, 0 if none runs."""
        return self._process.pid if self._process is not None else 0

    def _receive(self, kind: int, document: bytes, data: Any, numbers: tuple[int, ...]) -> None:
        """Take a packet."""
        raise NotImplementedError

    def _is_used(self) -> bool:
        """Return whether there are requests in the process."""
        raise NotImplementedError

    def _lose(self, reason: str) -> None:
        """Fail the waiting requests: the process has ended."""
        raise NotImplementedError

    def _change(self) -> None:
        """Notify those waiting for an instance that this one has changed."""
        self.on_change()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one()

    def start(self) -> str | None:
        """Start the process, wait until its model is ready, and return the result of START.

        Not for an event loop. Raises InferdError.
        """
        plan = self.plan
        self._check_files()
        process = plan.make(self.lines.line)
        link = Link(process.socket, process.arena, process.received, self._receive, self._lost)
        self._started = None
        # Set before the start, as the process may end at once.
        process.ended = lambda _: self._note_end(process)
        self._process, self._link = process, link
        self._born_s = time.monotonic()
        try:
            process.start()
            with suppress(LinkClosed):  # then it has ended, which is noticed below
                link.send(packet.START, [plan.settings])
            return self._wait_for_start(process, link)
        except BaseException:
            process.kill("was given up")
            process.has_ended.wait(FINALIZE_S)
            self._process = self._link = None
            link.close()
            process.close()
            raise

    def _check_files(self) -> None:
        """Raise BackendFailed unless the files are those of the first start."""
        seen = self.plan.files.look()
        if self._seen is None:
            self._seen = seen
        # A model may add files of its own, such as a cache; only what was there must be the same.
        elif not seen >= self._seen:
            raise BackendFailed(
                f"model '{self.plan.model}': its files have changed since it was loaded, and other "
                f"answers are no answers of this version; load it again, or put them back"
            )

    def _wait_for_start(self, process: WorkerProcess, link: Link) -> str | None:
        plan = self.plan
        deadline_s = self._born_s + plan.start_timeout_s
        while self._started is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise BackendFailed(
                    f"model '{plan.model}': its worker process was not ready within "
                    f"{plan.start_timeout_s:g} s; what it does at that time is initialize"
                )
            if self._is_closing or not plan.files.is_wanted():
                raise Unavailable(f"model '{plan.model}' is being unloaded")
            has_ended = process.has_ended.is_set()  # checked first, so its last packets are read
            if not link.wait(min(left_s, 0.2)) and has_ended:
                self._lost()
        started = self._started
        if isinstance(started, InferdError):
            raise started
        self.ahead.most = plan.ahead if started.is_in_turn else 1
        self._is_going = self._is_closing
        self.is_free = True
        return started.done

    def _lost(self, why: str = CLOSED) -> None:
        """Note that the link is useless: the process has ended, or will be killed."""
        process = self._process
        assert process is not None
        if self._started is None:
            if why != CLOSED or not process.has_ended.wait(GRACE_S):
                process.kill(why)
                process.has_ended.wait(FINALIZE_S)
            msg = f"model '{self.plan.model}': its worker process {process.reason} at the start"
            self._started = BackendFailed(msg)
        elif self.reads_on is not None:
            # A closed socket usually comes just before the end: the exit
            # code says more than our kill would.
            self.reads_on.call_later(GRACE_S if why == CLOSED else 0, process.kill, why)

    def _note_end(self, process: WorkerProcess) -> None:
        """Handle the end of the process; called in its own thread."""
        loop = self.reads_on
        if loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._bury, process)
                return
            process.close()
        if loop is not None or self._is_closing:
            self._note_closed()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """See AsyncInstance.attach."""
        if self._home is not None:
            return
        self._home = self.reads_on = loop
        self._attach_link(loop)

    def _attach_link(self, loop: asyncio.AbstractEventLoop) -> None:
        process = self._process
        assert self._link is not None
        self._link.attach(loop)
        if process is not None and process.has_ended.is_set():
            self._bury(process)
        else:
            self._change()

    def close(self) -> None:
        """Have the model finalize; running requests end with an error. See Instance.close."""
        self._is_closing = self._is_going = True
        self.is_free = False
        if self._home is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._home.call_soon_threadsafe(self._change)
        process, link = self._process, self._link
        if process is None or link is None or process.has_ended.is_set():
            if process is not None and self.reads_on is None:  # otherwise _bury closes it
                process.close()
            self._note_closed()
            return
        # With requests in it, a model may be anywhere in its code:
        # finalize would have to wait for them.
        if self.running_count or self.reads_on is None:
            process.kill("was unloaded")
        else:
            with suppress(LinkClosed):
                link.send(packet.FINALIZE, [])
        # A thread, as close may be called from any, and the event loop may be gone.
        threading.Thread(target=self._end_in_time, args=(process, FINALIZE_S), daemon=True).start()

    def _end_in_time(self, process: WorkerProcess, timeout_s: float) -> None:
        if not process.has_ended.wait(timeout_s):
            process.kill(f"did not finalize within {timeout_s:g} s")
            process.has_ended.wait()
        if self.reads_on is None:
            self._note_closed()
            process.close()

    async def closed(self, timeout_s: float) -> None:
        """See AsyncInstance.closed."""
        process = self._process
        await self._closed_within(timeout_s)
        if process is not None and not self._closed.is_set():
            process.kill("did not finalize in time")
            await self._closed_within(GRACE_S)

    async def _closed_within(self, timeout_s: float) -> None:
        closed = self._closed_later = asyncio.get_running_loop().create_future()
        if not self._closed.is_set():
            await asyncio.wait((closed,), timeout=timeout_s)

    def _note_closed(self) -> None:
        """Notify those waiting for the end; any thread may call this."""
        self._closed.set()
        closed, self._closed_later = self._closed_later, None
        if closed is not None:
            with suppress(RuntimeError):  # the loop has closed
                closed.get_loop().call_soon_threadsafe(_settle, closed)

    def _bury(self, process: WorkerProcess) -> None:
        """Fail the requests in the ended process, and start another process."""
        if self._is_closing:
            self._note_closed()
        link = self._link
        if process is not self._process or link is None:
            return  # already buried
        self._is_going = True
        self.is_free = False
        # Answers that the process sent before it ended are as good as any.
        link.read_last()
        self._process = self._link = None
        link.close()
        process.close()
        reason = f"the worker process of model '{self.plan.model}' {process.reason}"
        if not self._is_closing:
            log.error("%s", reason)
        is_calm = self._has_answered or time.monotonic() - self._born_s > CALM_S
        if is_calm:
            self._failures = self._ends = 0
        elif self._is_used():
            # Ended by its requests: a start works, so there is no reason to wait long.
            self._ends += 1
            self._failures = 0
        else:
            self._failures += 1
        if not self._is_closing:
            self._start_again(reason)
        # After _start_again, which decides whether requests are refused from now on: those that are
        # lost may come back at once.
        self._lose(f"{reason} while the request was in it")
        self._change()

    def _start_again(self, why: str) -> None:
        assert self._home is not None
        delay_s = _delay_s(self._failures, MOST_DELAY_S) or _delay_s(self._ends, MOST_PAUSE_S)
        if self._failures >= PATIENCE:
            self.unavailable_reason = f"{why}; the next start is in {delay_s:g} s"
        self._home.call_later(delay_s, self._start_in_thread)

    def _start_in_thread(self) -> None:
        if self._is_closing:
            return
        threading.Thread(
            target=self._restart, name=f"{self.plan.model}-restart", daemon=True
        ).start()

    def _restart(self) -> None:
        loop = self._home
        assert loop is not None
        error: InferdError | None = None
        try:
            self._started = None
            self.reads_on = None  # this thread reads until the process is ready
            self.start()
        except InferdError as failed:
            error = failed.with_traceback(None)  # a traceback keeps this frame and the process
        except Exception as failed:  # noqa: BLE001  e.g. out of descriptors: a later start may work
            error = BackendFailed(f"model '{self.plan.model}': {foreign_text(failed)}")
        finally:
            self.reads_on = loop
        try:
            loop.call_soon_threadsafe(self._restarted, error)
        except RuntimeError:  # the loop has closed
            if self._process is not None:
                self._process.kill("was given up")

    def _restarted(self, error: InferdError | None) -> None:
        if error is not None:
            self.is_free = False
            self._failures += 1
            if not self._is_closing:
                log.error("%s", error.message)
                self._start_again(error.message)
                self._change()
            return
        process, link, loop = self._process, self._link, self._home
        if process is None or link is None or loop is None:
            return  # it has already ended and been buried
        if self._is_closing:
            process.kill("was unloaded")
            if process.has_ended.is_set():
                self._bury(process)
            return
        log.info("model '%s' has a new worker process", self.plan.model)
        self.unavailable_reason = ""
        self._has_answered = False
        self._attach_link(loop)


def _delay_s(count: int, most_s: float) -> float:
    """Return how long to wait after `count` failures of a kind in a row."""
    if not count:
        return 0.0
    # Bounded in the exponent, too: after a week of failures the power alone would overflow.
    return min(FIRST_DELAY_S * 2.0 ** min(count - 1, _DOUBLINGS), most_s)


def _settle(closed: "asyncio.Future[None]") -> None:
    if not closed.done():
        closed.set_result(None)
