"""Servers of one process, or of several that ask each other, and what their dashboard is told."""

import asyncio
import subprocess
import sys

import msgspec
from figure_models import Clock

from inferd.core.processes import Processes
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.observe.log_lines import LogLines, encode_lines
from inferd.observe.numbers import merged
from inferd.ui.figures.board import SUBJECT, FigureBoard
from inferd.ui.figures.feeds import Figures
from inferd.ui.figures.sampler import Meters, Sampler
from inferd.ui.topics import Subject

OVERVIEW, MODELS, LOG, REQUESTS = map(Subject, ("overview", "models", "log", "requests"))


class OneProcess:
    """A process: its engine, what samples it, and what it tells readers."""

    def __init__(self, clock, count=1, gpus=None, **how):
        self.processes = Processes(0, count)
        self.engine = Engine(
            load_options=LoadOptions(allow_empty=True, model_control_mode="explicit")
        )
        self.engine.readiness.finish_loading()
        self.connections = 0
        meters = Meters(lambda: self.connections, gpus)
        self.sampler = Sampler(self.engine, meters, has_others=count > 1, clock=clock, **how)
        self.board = FigureBoard(self.engine, self.sampler, "id-1", self.processes, clock)
        self.figures = Figures(self.board)
        self.engine.whole.catalog.on_add.append(self.sampler.models.notice)
        self.pid = 0


class FigureServer:
    """So many processes, in this one, which know each other if they are several."""

    def __init__(self, count=1, **how):
        self.clock = Clock()
        self.all = [OneProcess(self.clock, count, **how) for _ in range(count)]
        self.ended = []
        self.silent = set()
        self.asked = []
        self.starter = LogLines()
        if count > 1:
            for one in self.all:
                one.engine.whole.others = _Others(self, one)

    def add(self, make):
        """Have all processes serve a version, and return it as each has it."""
        found = []
        for one in self.all:
            one.engine.catalog.add(served := make())
            found.append(served)
        return found

    def second(self, count=1):
        """Let seconds pass."""
        for _ in range(count):
            self.clock.now += 1
            for one in self.all:
                asyncio.run(one.sampler.sample(int(self.clock.now)))

    def end(self, one):
        """Have a process end, whose numbers are those that it told last."""
        self.all.remove(one)
        self.ended = [merged([*self.ended, one.engine.whole.numbers()])]

    def reader(self, *subjects):
        """Return one who reads of these subjects in the first process."""
        return Reader(self, subjects or (OVERVIEW,))


class Reader:
    """Reads of subjects."""

    def __init__(self, server, subjects):
        self.server = server
        self.figures = server.all[0].figures
        self.subjects = frozenset(subjects)
        self.feeds = [self.figures.feed(subject) for subject in subjects]

    def look(self):
        """Return what is new, with data as objects, by the names of events."""
        asyncio.run(self.figures.refresh(self.subjects))
        return self.heard()

    def heard(self):
        """Return what is new without another look at the server."""
        events = [event for feed in self.feeds for event in feed.news()]
        return {event.name: msgspec.json.decode(event.data) for event in events}


class _Others:
    def __init__(self, server, asker):
        self.server, self.asker = server, asker

    async def ask(self, what):
        subject, _, text = what.partition(" ")
        assert subject == SUBJECT
        self.server.asked.append(text)
        return [
            await one.board.reply(text)
            for one in self.server.all
            if one is not self.asker and one not in self.server.silent
        ]

    async def starter_lines(self, count):
        lines, dropped = self.server.starter.since(count)
        return [encode_lines(lines, dropped)]

    async def ended(self):
        return self.server.ended


def ended_pid():
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid
