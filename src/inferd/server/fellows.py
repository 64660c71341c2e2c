"""Fellows: the other processes of a server, which one of them reaches through the supervisor."""

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inferd.aio.thread import in_daemon_thread
from inferd.core.change import (
    Agreement,
    Change,
    ChangeLog,
    FollowModel,
    LoadModel,
    UnloadModel,
    about,
    decode_change,
    encode_change,
)
from inferd.engine.engine import Engine
from inferd.errors import InferdError, Unavailable, foreign_text
from inferd.fleet.bodies import packed, unpacked
from inferd.fleet.changes import gate_of
from inferd.fleet.inquiries import ENDED, LINES, MODELS, NOT_READY, NUMBERS, SAYS
from inferd.fleet.messages import (
    Answered,
    Ask,
    Decide,
    Done,
    Failure,
    FromProcess,
    LogChanged,
    Propose,
    Question,
    Replied,
    Reply,
    Vote,
)
from inferd.fleet.messages import Change as ChangeMessage
from inferd.forward.failure import decode_failure, encode_failure

log = logging.getLogger("inferd")

MAX_OPEN = 10_000
"""The most changes and questions of this process that may wait for the others."""


class Fellows:
    """The other processes of the server, as those of one `engine`; `send` reaches the supervisor.

    `folder` is the server's private one.
    It is the engine's Everywhere: changes that clients ask for here are made in every process.
    """

    def __init__(self, engine: Engine, folder: Path, send: Callable[[FromProcess], None]) -> None:
        self._engine = engine
        self._folder = folder
        self._send = send
        self._ids = itertools.count(1)
        self._proposals: dict[int, asyncio.Future[None]] = {}
        self._questions: dict[int, asyncio.Future[Sequence[bytes]]] = {}
        self._gates: dict[tuple[int, str], asyncio.Future[dict[int, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.replies: dict[str, Callable[[str], Awaitable[bytes]]] = {
            NUMBERS: lambda _rest: engine.whole.fresh(),
            SAYS: self._say,
        }
        """What replies to questions, by the first word; it gets the rest of them."""

    async def change(self, change: Change) -> None:
        """See Everywhere."""
        what = about(change)
        # Before the work: too many are refused at once.
        done: asyncio.Future[None] = _future(len(self._proposals))
        # A load may carry the files of a model, which are written to the private folder.
        body = await in_daemon_thread(lambda: packed(encode_change(change), self._folder))
        id = next(self._ids)
        self._proposals[id] = done
        self._send(Propose(id, what.queue, what.key, body, what.is_erasing))
        try:
            await done
        finally:
            self._proposals.pop(id, None)

    async def numbers(self, own: bytes) -> Sequence[bytes]:
        """See Others."""
        return await self._ask(NUMBERS, own)

    async def say_ready(self, name: str = "", version: str = "") -> bool:
        """See Others."""
        return NOT_READY not in await self._ask(f"{SAYS} {version} {name}")

    async def _say(self, rest: str) -> bytes:
        version, _, name = rest.partition(" ")
        is_ready = await self._engine.readiness.own_say_ready(name, version)
        return b"" if is_ready else NOT_READY

    async def ask(self, what: str) -> Sequence[bytes]:
        """See Others."""
        return await self._ask(what)

    async def ended(self) -> Sequence[bytes]:
        """See Others."""
        return await self._ask(ENDED)

    async def starter_lines(self, count: int) -> Sequence[bytes]:
        """See Others."""
        return await self._ask(f"{LINES}{count}")

    async def _ask(self, what: str, own: bytes = b"") -> Sequence[bytes]:
        id = next(self._ids)
        answered: asyncio.Future[Sequence[bytes]] = _future(len(self._questions))
        self._questions[id] = answered
        self._send(Ask(id, what, own))
        try:
            return await answered
        finally:
            self._questions.pop(id, None)

    def answered(self, message: Answered) -> None:
        """Take the end of a change that was asked for here."""
        _settle(self._proposals.get(message.id), None, message.failure)

    def answer(self, message: Replied) -> None:
        """Take what the others replied to a question."""
        _settle(self._questions.get(message.id), message.bodies)

    def question(self, message: Question) -> None:
        """Reply to a question of another process, or of the supervisor, or begin to."""
        # A question of `inferd status`; answered at once, as nothing has to be waited for.
        if message.what == MODELS:
            counts = Counter(one.state.value for one in self._engine.catalog.index() if one.state)
            self._send(Reply(message.number, json.dumps(counts).encode()))
        else:
            self._begin(self._reply(message))

    async def _reply(self, message: Question) -> None:
        subject, _, rest = message.what.partition(" ")
        reply = self.replies.get(subject)
        body = b"" if reply is None else await reply(rest)  # without one, nobody here knows
        self._send(Reply(message.number, body))

    def decide(self, message: Decide) -> None:
        """Let a change go through its gate, or end it."""
        failures = {int(part): why for part, why in message.failures.items()}
        _settle(self._gates.get((message.change, message.gate)), failures, message.failure)

    def make(self, message: ChangeMessage) -> None:
        """Begin to make a change, and tell the supervisor when it is done.

        Once this process ends it makes none, and says nothing: the others need not wait for it
        once it has ended.
        """
        if not self._is_closed:
            self._begin(self._make(message))

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make(self, message: ChangeMessage) -> None:
        failure = serves = None
        try:
            change = await in_daemon_thread(lambda: decode_change(unpacked(message.body)))
            agreement = _Gates(self, message, getattr(change, "model", None))
            await self._engine.changes.make(change, agreement)
            # Once, at the end of what a process that starts repeats.
            if message.is_last:
                await self._learn_births()
            # The supervisor has followed these settings when they were made.
            if isinstance(change, ChangeLog) and not message.is_replay:
                settings = self._engine.log.settings
                file = {"file": str(settings.file or "")}
                self._send(LogChanged(**asdict(settings) | file))
            if isinstance(change, LoadModel | UnloadModel | FollowModel):
                serves = self._engine.control.prints()
        except InferdError as error:
            failure = Failure(*encode_failure(error))
        # The others wait for this process's word: it must come whatever happens.
        except Exception as error:
            log.exception("a change failed")
            failure = Failure("InferdError", f"the change failed: {foreign_text(error)}")
        self._send(Done(message.number, failure, serves))

    async def _learn_births(self) -> None:
        """Take over by which changes the others, or those that ended, loaded what is here, too."""
        whole = self._engine.whole
        whole.bear(await self.numbers(await whole.in_turns()))

    async def wait_at(self, gate: tuple[int, str], failures: dict[int, str]) -> dict[int, str]:
        """Stand at a gate until the supervisor decides; see Agreement.all_can."""
        number, name = gate
        opened: asyncio.Future[dict[int, str]] = _future(0)
        # Noted before the vote, whose answer may come at once.
        self._gates[gate] = opened
        self._send(Vote(number, name, {str(part): why for part, why in failures.items()}))
        try:
            return await opened
        finally:
            del self._gates[gate]

    def close(self) -> None:
        """Give up what waits: this process ends."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        waiting: list[asyncio.Future[Any]] = [*self._proposals.values(), *self._questions.values()]
        for one in waiting:
            if not one.done():
                one.set_exception(Unavailable("the server is shutting down"))


class _Gates(Agreement):
    """The gates of one change. What is replayed has been agreed on before."""

    def __init__(self, fellows: Fellows, message: ChangeMessage, model: str | None) -> None:
        self.number = message.number
        self._fellows = fellows
        self.is_replay = message.is_replay
        self._model = model

    async def all_can(self, name: str, failures: dict[int, str]) -> dict[int, str]:
        """See Agreement."""
        # It has been made by the others: there is nothing to agree on.
        if self.is_replay:
            return failures
        # Models that are loaded for an ensemble have gates of their own.
        is_side = self._model is not None and name != self._model
        return await self._fellows.wait_at((self.number, gate_of(name, is_side=is_side)), failures)


def _future(open_count: int) -> "asyncio.Future[Any]":
    """Return a new future, if not too many are open. Raises Unavailable."""
    if open_count >= MAX_OPEN:
        raise Unavailable(f"{MAX_OPEN} changes of the server wait already")
    return asyncio.get_running_loop().create_future()


def _settle(
    waiting: "asyncio.Future[Any] | None", result: object, failure: Failure | None = None
) -> None:
    """Have whoever waits go on, if there still is somebody: a client may have gone."""
    if waiting is None or waiting.done():
        return
    if failure is None:
        waiting.set_result(result)
    else:
        waiting.set_exception(decode_failure((failure.kind, failure.text)))
