"""ForwardScheduler: runs a request in this process of the server, or has its owner run it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from time import perf_counter_ns

from inferd.core.interfaces import GatheringScheduler, Scheduler, SequenceKeeper, prompt_of
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Unavailable
from inferd.forward.exchange import Exchange
from inferd.forward.home import Home
from inferd.forward.origin_end import Left, OriginEnd
from inferd.forward.owned import AbsentScheduler
from inferd.forward.owner import owner_of, sequence_key
from inferd.forward.streaming import SentStream, answers_there
from inferd.schedulers.queueing.policy import unloading

WAIT_S = 10.0
"""How long a request waits for an owner that is being restarted, unless its own timeout ends."""

LINGER_S = 1.0
"""How long a version that was replaced takes what is sent by processes that have it still."""

Check = Callable[[InferRequest, InferResponse], None]
"""ResponseCheck.check."""

_ANY = -1


class ForwardScheduler:
    """Runs what belongs here on `local`, and has the other processes of `exchange` run the rest.

    `home` says who owns what, once `spread_over` has said how many instances there are. The owner
    runs requests of versions of the same `form`, and checks its answers by `check`.
    """

    def __init__(
        self,
        name: tuple[str, str],
        local: Scheduler,
        exchange: Exchange,
        home: Home,
        form: bytes,
        check: Check,
    ) -> None:
        self.model, self.version = name
        self.local = local
        self.form = form
        self.check = check
        self.is_leaving = False
        self.has_instances = not isinstance(local, AbsentScheduler)
        self.on_left: Left | None = None
        """Told of a request from here that was running when it was given up."""
        self._exchange = exchange
        self._home = home
        self._prompt = prompt_of(local)
        self.may_be_prompt = self._prompt is not None
        self._keeper = local if isinstance(local, SequenceKeeper) else None
        self._sent: Counter[int] = Counter()  # the requests under way there, by owner
        self._own = self._last = home.number
        self._quiet: asyncio.Future[None] | None = None
        self.spread_over(0)
        exchange.owned.add(self)

    def spread_over(self, instance_count: int) -> None:
        """Note how many instances the version has in all."""
        self._owners = self._home.owners(instance_count)
        self._others = [number for number in self._owners if number != self._own]
        # Known beforehand where one process has it all: requests of most models look nothing up.
        self._usual = self._others[0] if len(self._others) == 1 else _ANY
        # An owner runs its own requests: no hop.
        if self._own in self._owners:
            self._usual = self._own

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count. What waits elsewhere is counted there."""
        return self.local.pending_count

    def run_now(self, request: InferRequest) -> InferResponse | None:
        """See PromptScheduler.run_now."""
        if self._prompt is None or self._owner(request) != self._own:
            return None
        return self._prompt.run_now(request)

    async def run(self, request: InferRequest) -> InferResponse:
        """See Scheduler.run. Raises Unavailable when the owner does not come up or ends."""
        owner = self._owner(request)
        if owner == self._own:
            return await self.run_here(request)
        # Set before it leaves: the way there counts as waiting.
        request.queued_ns = perf_counter_ns()
        link = self._link(owner) or await self._waited_for(owner, request)
        return await self._run_there(link, request)

    async def _run_there(self, link: OriginEnd, request: InferRequest) -> InferResponse:
        number, done = link.begin(request, self.version, self.form)
        self._sent[link.number] += 1
        try:
            return await done
        except BaseException:
            link.give_up(number, self.on_left)
            raise
        finally:
            del done  # it may hold an error whose traceback refers to this frame
            self._note_back(link.number)

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Scheduler.stream, and `run`."""
        owner = self._owner(request)
        if owner == self._own:
            return self.stream_here(request)
        return self._answers_there(owner, request)

    def _owner(self, request: InferRequest) -> int:
        """Return the number of the process that runs `request`, _ANY for any of the others.

        Raises Unavailable while the version is unloaded.
        """
        if self.is_leaving:
            raise unloading(self.model)
        if self._home.by_sequence:
            sequence = request.sequence
            if sequence is not None and sequence.id:
                return owner_of(sequence_key(self.model, sequence.id), self._owners)
        return self._usual

    def _link(self, number: int) -> OriginEnd | None:
        """Return a link to the owner; of several, to the one with the fewest requests from here."""
        peers = self._exchange.peers
        if number != _ANY:
            return peers.link(number)
        links = [link for other in self._others if (link := peers.link(other)) is not None]
        if not links:
            return None
        last, count, sent = self._last, self._home.count, self._sent
        # Of those with equally few, the next one in turn.
        best = min(links, key=lambda link: (sent[link.number], (link.number - last - 1) % count))
        self._last = best.number
        return best

    def _answers_there(
        self, number: int, request: InferRequest
    ) -> AsyncGenerator[InferResponse, None]:
        send = partial(self._send_stream, number, request)
        here = partial(self.local.stream, request)
        return answers_there(send, here, self._note_back, self.on_left)

    async def _send_stream(self, number: int, request: InferRequest) -> SentStream | None:
        """Have the owner begin `request`; return None if it runs here. Raises Unavailable."""
        if number == self._own:
            # Its own number, which two processes have while one is replaced.
            link = await self._other_of_two(request)
            if link is None:
                return None
        else:
            request.queued_ns = perf_counter_ns()
            link = self._link(number) or await self._waited_for(number, request)
        begun = link.begin_stream(request, self.version, self.form)
        self._sent[link.number] += 1
        return link, begun

    async def _waited_for(self, number: int, request: InferRequest) -> OriginEnd:
        """Return a link to the owner, which is not ready now. Raises Unavailable."""
        # A timeout of 0 is none.
        wait_s = min(request.timeout_us / 1e6 or WAIT_S, WAIT_S)
        numbers = self._others if number == _ANY else [number]
        await self._exchange.peers.wait(numbers, wait_s)
        link = self._link(number)
        if link is None:
            raise self._not_ready(numbers, wait_s)
        return link

    def _not_ready(self, numbers: list[int], wait_s: float) -> InferdError:
        named = " or ".join(map(str, numbers))
        return Unavailable(
            f"model '{self.model}': process {named} of the server, which runs the request, was not "
            f"ready within {wait_s:g} s"
        )

    def _note_back(self, number: int) -> None:
        """Note that a request is not under way in process `number` any more."""
        self._sent[number] -= 1
        if self._quiet is not None and not self._quiet.done() and not self._sent.total():
            self._quiet.set_result(None)

    def run_here_now(self, request: InferRequest) -> InferResponse | None:
        """See Owned.run_here_now."""
        return None if self._prompt is None else self._prompt.run_now(request)

    def run_here(self, request: InferRequest) -> Coroutine[object, None, InferResponse]:
        """See Owned.run_here."""
        if self._keeper is not None and self._exchange.peers.are_two:
            return self._run_in_one_of_two(request)
        return self.local.run(request)

    def stream_here(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See Owned.stream_here."""
        if self._keeper is not None and self._exchange.peers.are_two:
            return self._answers_there(self._own, request)
        return self.local.stream(request)

    @property
    def sequence_count(self) -> int:
        """See Owned.sequence_count."""
        return self._keeper.sequence_count if self._keeper is not None else 0

    def has_sequence(self, id: int | str) -> bool:
        """See Owned.has_sequence."""
        return self._keeper is not None and self._keeper.has_sequence(id)

    async def _run_in_one_of_two(self, request: InferRequest) -> InferResponse:
        link = await self._other_of_two(request)
        return await (self.local.run(request) if link is None else self._run_there(link, request))

    async def _other_of_two(self, request: InferRequest) -> OriginEnd | None:
        """Return a link to the other process of this one's number if `request` is for that.

        A sequence stays where it lives, and new ones live in the new process.
        """
        sequence, peers = request.sequence, self._exchange.peers
        # The usual case: it lives here, and nobody has to be asked.
        if sequence is None or not sequence.id or self.has_sequence(sequence.id):
            return None
        # This is the new one of two: the old one knows which sequences live there.
        link = peers.predecessor
        if link is None:
            # This is the old one: what does not live here begins in the new one.
            link = peers.link(self._own)
        elif not await link.has_sequence(self.model, self.version, sequence.id):
            return None
        if link is not None:
            request.queued_ns = perf_counter_ns()
        return link

    def hurry(self) -> None:
        """See GatheringScheduler.hurry."""
        if isinstance(self.local, GatheringScheduler):
            self.local.hurry()

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close. Other processes may send requests for LINGER_S more."""
        self.is_leaving = True
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        # What is under way elsewhere is not `local`'s, which would not wait for it.
        if self._sent.total():
            self._quiet = loop.create_future()
            await asyncio.wait((self._quiet,), timeout=timeout_s)
        linger_s = min(LINGER_S, end_s - loop.time())
        # Without other processes nobody sends anything.
        if linger_s > 0 and self._exchange.has_origins:
            await asyncio.sleep(linger_s)
        self._exchange.owned.remove(self)
        await self.local.close(max(0.0, end_s - loop.time()))
