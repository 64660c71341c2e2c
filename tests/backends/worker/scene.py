"""A worker instance whose processes are played by a test, one after another."""

import asyncio
import threading
import time
from pathlib import Path

from line_peer import PATIENCE_S, Peer, PeerProcess, packed

from inferd.backends.worker.instance import WorkerInstance
from inferd.backends.worker.plan import WorkerPlan
from inferd.core.interfaces import ModelFiles
from inferd.core.request import InferRequest
from inferd_worker import packet

READY = packed(packet.READY, [[], None])


def files_of(**more):
    """Return the files of version 1 of a model that has none."""
    return ModelFiles(Path(), 1, Path(), Path(), **more)


class Scene:
    """A WorkerInstance whose processes are played by `peers`, one after another.

    `at_start` is what each says first, `refusals` why the next ones cannot be made; `prepare` gets
    each that is made.
    """

    def __init__(self, at_start=READY, **more):
        self.peers = []
        self.processes = []
        self.at_start = at_start
        self.refusals = []
        self.prepare = lambda process: None
        self.changes = 0
        self.made = threading.Event()
        plan = {"files": files_of(), "start_timeout_s": PATIENCE_S} | more
        self.instance = WorkerInstance(WorkerPlan("m", settings={"a": 1}, make=self._make, **plan))
        self.instance.on_change = self._note

    def _make(self, told):
        del told
        if self.refusals:
            raise self.refusals.pop()
        self.peers.append(Peer())
        self.processes.append(PeerProcess(self.peers[-1]))
        self.prepare(self.process)
        if self.at_start is not None:
            self.peers[-1].say(self.at_start)
        self.made.set()
        return self.processes[-1]

    def _note(self):
        self.changes += 1

    @property
    def peer(self):
        return self.peers[-1]

    @property
    def process(self):
        return self.processes[-1]

    def close(self):
        if self.instance._link is not None:
            self.instance._link.close()
        for peer in self.peers:
            peer.close()


async def until(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.001)


def played(play, *scenes):
    """Run `play` while the event loop reads what the workers of `scenes` say."""

    async def run():
        for one in scenes:
            one.instance.attach(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(play(), PATIENCE_S)
        finally:
            for one in scenes:
                one.instance.close()
                one.process.end()
                await one.instance.closed(PATIENCE_S)

    asyncio.run(run())


def begun(one, *ids):
    """Begin an execution of requests; return where its outcome will stand, and its number."""
    outcomes = []
    one.instance.begin([InferRequest("m", id=id) for id in ids], outcomes.append)
    one.peer.hear()
    return outcomes, one.instance._numbers
