"""A simulation of a server of several processes: real decisions, and nothing else real.

A schedule is a random number's. What is sent arrives in order, after a random time, sometimes
twice; processes load, answer, fail, hang and are killed at random; somebody asks for changes,
numbers, connections, and for a replacement of all processes. A seed replays everything.
"""

import heapq
import itertools
import random

from inferd.fleet.changes import gate_of
from inferd.fleet.fleet import Fleet, Rules
from inferd.fleet.inquiries import NUMBERS
from inferd.fleet.members import State
from inferd.fleet.messages import (
    Answered,
    Ask,
    Beat,
    Begin,
    Change,
    ConnectionLoad,
    Decide,
    Done,
    Drain,
    Failure,
    Follow,
    ModelsLoaded,
    Propose,
    Question,
    Replied,
    Reply,
    Retire,
    Stopping,
    Tally,
    Vote,
)
from inferd.fleet.status import ReplacementState

FAILED = Failure("LoadFailed", "it does not load")
DRAIN_S = 5.0
TICK_S = 0.2
BEAT_S = 3.0
"""Seldom for a process, often enough for one that is taken for hung after 20 s of silence."""

NOTHING_NEW = object()
"""Returned by what happens all the time and changes nothing that is checked."""


class FakeProcess:
    """A process: what it has made of changes, by what they are about, and what it has counted."""

    def __init__(self, world, number, slot):
        self.world, self.number, self.slot = world, number, slot
        self.made = {}
        self.begun = set()
        self.at_gate = {}
        self.count = 0
        self.is_alive = True
        self.serves = False
        self.drains = False
        self.is_closed = False
        self.follows = False
        self.is_deaf = False
        self.ids = itertools.count(1)
        self.asked = {}

    def say(self, message):
        if self.is_alive and not self.is_deaf:
            self.world.deliver(("up", self.number), lambda: self.world.heard(self, message))

    def hear(self, message):
        if not self.is_alive or self.is_closed:
            return
        if isinstance(message, Change):
            self.begin_change(message)
        elif isinstance(message, Decide):
            self.decide(message)
        elif isinstance(message, Question):
            self.say(Reply(message.number, self.numbers()))
        elif isinstance(message, Answered):
            self.world.answered(self, message)
        elif isinstance(message, Replied):
            self.world.told(self, message)
        elif isinstance(message, Begin):
            self.serves = True
        elif isinstance(message, Follow):
            self.follows = True
        elif isinstance(message, Drain):
            self.serves, self.drains = False, True
            self.world.after(self.world.random.uniform(0, 3), self.finish)

    def begin_change(self, message):
        if message.number in self.begun:  # it has come before
            return
        self.begun.add(message.number)
        fate = "fine" if message.is_replay else self.world.fate_of(message.number, self.number)
        if fate == "early":
            self.later(lambda: self.say(Done(message.number, FAILED)))
        elif message.is_replay:
            self.apply(message)
            self.later(lambda: self.say_done(message.number))
        elif self.world.has_gate(message):
            self.later(lambda: self.vote(message, fate))
        else:
            self.later(lambda: (self.apply(message), self.say_done(message.number)))

    def vote(self, message, fate):
        steps = self.world.steps_of(message.number, self.number)
        self.at_gate[message.number] = message, steps
        self.stand(message, steps, fate)

    def stand(self, message, steps, fate):
        name = steps[0] if steps else "model"
        failures = {"1": "broken"} if fate == "part" and not steps else {}
        self.say(Vote(message.number, gate_of(name, is_side=bool(steps)), failures))

    def decide(self, message):
        if message.change not in self.at_gate:
            return
        change, steps = self.at_gate[message.change]
        if message.gate != gate_of(steps[0] if steps else "model", is_side=bool(steps)):
            return  # it has come before
        if message.failure is not None or message.failures:
            del self.at_gate[message.change]
            self.later(lambda: self.say(Done(change.number, message.failure or FAILED)))
        elif steps:
            self.at_gate[message.change] = change, steps[1:]
            fate = self.world.fate_of(change.number, self.number)
            self.later(lambda: self.stand(change, steps[1:], fate))
        else:
            del self.at_gate[message.change]
            self.apply(change)
            failure = FAILED if self.world.fate_of(change.number, self.number) == "late" else None
            self.later(lambda: self.say_done(change.number, failure))

    def say_done(self, number, failure=None):
        self.say(Done(number, failure, self.serves_now()))

    def apply(self, message):
        key, value = message.body.decode().split("=")
        if key.endswith("!"):
            self.made.pop(key[:-1], None)
        else:
            self.made[key] = f"{value} of {self.world.files.get(key)}", message.number

    def later(self, action):
        """Do something after a while, unless this process ends before."""
        delay_s = self.world.random.uniform(0, 0.5)
        self.world.after(delay_s, lambda: self.is_alive and not self.is_closed and action())

    def serves_now(self):
        """What it serves; regions are no models."""
        kept = {key: value for key, value in self.made.items() if key.startswith("models/")}
        return {key: {"1": ("config", value)} for key, (value, _) in kept.items()}

    def numbers(self):
        return str(self.count).encode()

    def finish(self):
        if self.is_alive and not self.is_closed:
            self.is_closed = True
            self.say(Tally(self.numbers()))
            self.say(Stopping(0))
            self.world.deliver(("up", self.number), lambda: self.world.end(self, "exit code 0"))


class World:
    """Everything beside the Fleet, which is driven through `rounds` random events."""

    def __init__(self, seed, rounds=60):
        self.random = random.Random(seed)
        self.seed = seed
        self.rounds = rounds
        self.now = 0.0
        self.queue = []
        self.order = itertools.count()
        self.last_at = {}
        self.processes = {}
        self.fates = {}
        self.steps = {}
        self.answers = {}
        self.killed = set()
        self.files = {}  # what models are made from
        self.is_calm = False
        self.ended_at = None
        self.accepts = False
        self.is_closed = False
        self.shown = 0
        self.count = self.random.randint(1, 4)
        self.fleet = Fleet(
            Rules(self.count, 20.0, DRAIN_S, self.random.choice([0.0, 1.0])),
            self,
            lambda: self.now,
            merge=lambda bodies: str(sum(int(body) for body in bodies)).encode(),
            socket_of=str,
            discard=lambda body: None,
        )

    # --- time ---

    def after(self, delay_s, action):
        heapq.heappush(self.queue, (self.now + delay_s, next(self.order), action))

    def deliver(self, channel, action):
        """Have `action` happen after all those before it on this channel, sometimes twice."""
        at = max(self.last_at.get(channel, 0.0), self.now + self.random.expovariate(20))
        self.last_at[channel] = at
        heapq.heappush(self.queue, (at, next(self.order), action))
        if self.random.random() < 0.05:
            heapq.heappush(self.queue, (at, next(self.order), action))

    def run_until(self, end_s):
        while self.queue and self.queue[0][0] <= end_s:
            self.now, _, action = heapq.heappop(self.queue)
            if action() is not NOTHING_NEW:
                self.check()
        self.now = end_s

    # --- the shell ---

    def spawn(self, number, slot):
        process = self.processes[number] = FakeProcess(self, number, slot)
        if not self.is_calm and self.random.random() < 0.1:
            self.after(self.random.uniform(0, 1), lambda: self.end(process, "SIGSEGV"))
        self.after(self.random.uniform(0.1, 3), lambda: process.say(ModelsLoaded()))
        self.beat(process)

    def beat(self, process):
        if process.is_alive:
            process.say(
                self.random.choice([Beat(), ConnectionLoad(0, 0), Tally(process.numbers())])
            )
            self.after(BEAT_S, lambda: self.beat(process))
        return NOTHING_NEW

    def send(self, number, message):
        process = self.processes[number]
        if isinstance(message, Answered):
            self.check_answer(number, message)
        self.deliver(("down", number), lambda: process.hear(message))

    def kill(self, number):
        self.killed.add(number)
        self.after(0.01, lambda: self.end(self.processes[number], "SIGKILL"))

    def accept(self, *, is_open):
        self.accepts = is_open

    def close(self):
        assert not self.is_closed
        self.is_closed = True

    def show(self, loaded):
        self.shown += 1

    def end_all(self, code):
        self.ended_at = self.now

    def lines(self, count):
        return b"lines after %d" % count

    def end(self, process, why=None):
        if isinstance(process, int):  # the Shell's end(code)
            assert self.ended_at is None
            assert not any(one.is_alive for one in self.processes.values())
            self.ended_at = self.now
        elif process.is_alive:
            process.is_alive = process.serves = False
            # All that it said has been heard before its end is noticed.
            self.deliver(("up", process.number), lambda: self.fleet.lost(process.number, why))

    # --- what happens ---

    def heard(self, process, message):
        self.fleet.hear(process.number, message)
        return NOTHING_NEW if isinstance(message, Beat | ConnectionLoad | Tally) else None

    def fate_of(self, change, number):
        key = change, number
        if key not in self.fates:
            kinds, weights = ("fine", "early", "part", "late"), (90, 4, 4, 2)
            if self.is_calm:
                weights = 1, 0, 0, 0
            self.fates[key] = self.random.choices(kinds, weights)[0]
        return self.fates[key]

    def has_gate(self, message):
        return b"gateless" not in message.body

    def steps_of(self, change, number):
        """The steps that a process must change first: not the same in all."""
        if change not in self.steps:
            self.steps[change] = self.random.random() < 0.2
        return ["step"] if self.steps[change] and self.random.random() < 0.5 else []

    def alive(self):
        return [one for one in self.processes.values() if one.is_alive]

    def something(self):
        """Let one random thing happen."""
        serving = [one for one in self.alive() if one.serves or one.drains]
        if not serving:
            return
        one = self.random.choice(serving)
        what = self.random.random()
        if what < 0.4:
            queue = self.random.choice(["models", "regions"])
            key = f"{queue}/{self.random.choice(['a', 'b', 'gateless'])}"
            is_erasing = self.random.random() < 0.2
            body = f"{key}{'!' if is_erasing else ''}={self.random.random()}".encode()
            one.say(Propose(next(one.ids), queue, key, body, is_erasing))
        elif what < 0.6:
            one.count += self.random.randint(1, 5)
            id = next(one.ids)
            own = one.count
            one.asked[id] = own
            one.say(Ask(id, NUMBERS, one.numbers()))
        elif what < 0.72:
            self.end(one, "SIGKILL")
        elif what < 0.75:
            one.is_deaf = True
        elif what < 0.78:
            one.say(Retire())
        elif what < 0.83:
            self.fleet.replacements.roll()
        elif what < 0.85:
            self.files[self.random.choice(["models/a", "models/b"])] = self.random.random()
        else:
            for any_one in serving:
                any_one.count += 1

    # --- what must hold ---

    def ready(self):
        return self.those_in(State.READY)

    def those_in(self, *states):
        """The processes in one of these states that have served, and still answer."""
        members = [one for one in self.fleet.members if one.state in states]
        found = [self.processes[one.number] for one in members if one.ready_s is not None]
        return [one for one in found if one.is_alive and not one.is_closed]

    def check(self):
        for member in self.fleet.members:
            assert member.given_count >= 0
        chosen = self.fleet.choose()
        if chosen is not None and not self.fleet.is_stopping:
            if self.fleet.has_begun:
                assert chosen.state is State.READY
            else:
                assert chosen.slot == 0
        if self.fleet.has_begun and not self.fleet.is_stopping:
            assert self.accepts == (chosen is not None)

    def check_answer(self, number, message):
        """Before a client hears of a change, it is made in all that answer, or in none.

        A process that is replaced still answers its clients.
        """
        told = (number, message.id)
        assert told not in self.answers, "answered twice"
        self.answers[told] = message
        states = {}
        for one in self.those_in(State.READY, State.DRAINING):
            for key, (value, change) in one.made.items():
                states.setdefault(key, {}).setdefault((value, change), []).append(one.number)
        running = {change.number for change in self.fleet.changes._running.values()}
        for key, values in states.items():
            finished = [pair for pair in values if pair[1] not in running]
            kept = [pair for pair in finished if not set(values[pair]) <= self.killed]
            if not any(pair[1] in running for pair in values):
                assert len(kept) <= 1, (key, values)

    def answered(self, process, message):
        pass

    def told(self, process, message):
        own = process.asked.pop(message.id, None)
        if own is None:
            return
        total = own + sum(int(body) for body in message.bodies)
        assert total >= process.__dict__.get("heard_total", 0), "what was told has fallen"
        process.heard_total = total

    # --- a life ---

    def live(self):
        self.fleet.start()
        self.tick()
        for _ in range(self.rounds):
            self.run_until(self.now + self.random.expovariate(2))
            self.something()
        self.is_calm = True
        for _ in range(3):
            self.run_until(self.now + 10)
            self.load_all()
        self.run_until(self.now + 20)
        replacement = self.fleet.replacements.last
        if replacement is not None and replacement.state is ReplacementState.RUNNING:
            self.run_until(self.now + 40)  # one that began while a process was deaf
        if self.ended_at is None and not self.fleet.is_stopping:
            self.check_calm()
            self.fleet.stop()
        self.run_until(self.now + DRAIN_S * 3)
        assert self.ended_at is not None, "the drain does not end"
        assert self.is_closed

    def load_all(self):
        """Have all read the files as they are: a process that finds others can join then."""
        able = [one for one in self.alive() if one.serves and not one.is_deaf]
        for key in ("models/a", "models/b") if able else ():
            able[0].say(Propose(next(able[0].ids), "models", key, f"{key}=1".encode()))

    def tick(self):
        if self.ended_at is None:
            self.fleet.check_time()
            self.after(TICK_S, self.tick)
        return NOTHING_NEW  # what it has decided is checked when it happens

    def check_calm(self):
        """After a while without faults all is well again: all serve, and are the same."""
        members = list(self.fleet.members)
        assert [member.state for member in members] == [State.READY] * self.count, members
        assert sorted(member.slot for member in members) == list(range(self.count))
        made = [self.processes[member.number].made for member in members]
        assert all(one == made[0] for one in made), made
        followers = [self.processes[member.number].follows for member in members]
        assert sum(followers) == 1
