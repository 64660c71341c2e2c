"""A simulated cluster: replicas start, load, serve and end as a test says; no Ray, no time."""

import random
from dataclasses import dataclass, field

from inferd.ray.deployment import Deployment
from inferd.ray.replica import ReplicaLoad, ReplicaReport, ServingState
from inferd.ray.spec import DeploymentSpec, GroupSpec, ScalingRule

STEP_S = 0.25


def group(name="g", least=1, most=None, models=("/m",), **more):
    rule = more.pop("rule", {})
    scaling = ScalingRule(least=least, most=least if most is None else most, **rule)
    return GroupSpec(name=name, models=models, scaling=scaling, **more)


def spec(*groups, generation=0):
    return DeploymentSpec(groups=groups, generation=generation)


@dataclass
class Actor:
    """A replica as the cluster has it."""

    spec: GroupSpec
    born_s: float
    state: ServingState | None = None  # None: Ray has not placed it
    ready_at: float = 0.0
    end_at: float | None = None
    is_gone: bool = False  # the actor is away, and Ray says so
    is_cut: bool = False  # its node is silent
    answers: bool = True
    load: dict = field(default_factory=lambda: {"requests": 0.0, "duration_us": 0.0, "cpu_s": 0.0})
    inflight: float = 0.0
    reason: str = ""


class World:
    """Actors by number, and the deployment that decides about them."""

    def __init__(self, seed=0, start_s=1.0, load_s=1.0, drain_s=0.5):
        self.now = 0.0
        self.random = random.Random(seed)
        self.start_s, self.load_s, self.drain_s = start_s, load_s, drain_s
        self.room = 100  # so many actors fit
        self.broken = set()  # models that never get ready; their servers end
        self.hung = set()  # models that load for ever
        self.actors = {}
        self.forced = []
        self.probes = set()
        self.history = []  # (time, ready places) after each step
        self.rate = 0.0  # requests at the same time, over all replicas
        self.deployment = Deployment("inferd", self, lambda: self.now)

    # what the deployment makes happen

    def start(self, replica, spec):
        self.actors[replica.number] = Actor(spec, self.now)

    def stop(self, replica):
        actor = self.actors[replica.number]
        if actor.state is not ServingState.ENDED:
            actor.state, actor.end_at = ServingState.ENDING, self.now + self.drain_s

    def remove(self, replica, *, force):
        actor = self.actors.pop(replica.number)
        if force:
            self.forced.append(replica.number)
        else:
            assert actor.state is ServingState.ENDED or actor.is_gone

    def probe(self, replica):
        self.probes.add(replica.number)

    # what happens in the cluster

    def step(self):
        """Let a little time pass."""
        self.now += STEP_S
        for number, actor in sorted(self.actors.items()):
            self._live(actor)
            if actor.is_gone:
                if not actor.is_cut:
                    self.deployment.lost(number, "the actor died")
            elif actor.state is not None and not actor.is_cut:
                self.deployment.report(number, self._report(actor))
        for number in sorted(self.probes):
            if number in self.actors:
                actor = self.actors[number]
                is_ready = actor.answers and actor.state is ServingState.READY
                self.deployment.probed(number, answers=is_ready)
        self.probes.clear()
        self.deployment.tick()
        self.history.append((self.now, len(self.ready())))

    def run(self, seconds):
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def until(self, holds, seconds=300.0):
        """Let time pass until `holds()`; return how long that took."""
        began = self.now
        while not holds():
            assert self.now - began < seconds, self.deployment.status()
            self.step()
        return self.now - began

    def settle(self, seconds=300.0):
        return self.until(lambda: self.deployment.status().is_settled, seconds)

    def _live(self, actor):
        placed = sum(each.state is not None for each in self.actors.values())
        if actor.state is None and self.now - actor.born_s >= self.start_s and placed < self.room:
            actor.state, actor.ready_at = ServingState.LOADING, self.now + self.load_s
        elif actor.state is ServingState.LOADING and self.now >= actor.ready_at:
            if actor.spec.models[0] in self.broken:
                actor.state, actor.reason = ServingState.ENDED, "no such folder"
            elif actor.spec.models[0] not in self.hung:
                actor.state = ServingState.READY
        elif actor.state is ServingState.ENDING and self.now >= actor.end_at:
            actor.state = ServingState.ENDED
        if actor.state is ServingState.READY:
            actor.inflight = self.rate / max(self.serving(), 1)
            actor.load["requests"] += actor.inflight * 10 * STEP_S
            actor.load["duration_us"] += actor.inflight * 1e6 * STEP_S

    def _report(self, actor):
        is_up = actor.state in (ServingState.READY, ServingState.ENDING)
        return ReplicaReport(
            state=actor.state,
            node="n",
            host="127.0.0.1",
            http_port=8000 if is_up else 0,
            grpc_port=8001 if is_up else 0,
            models=("m",),
            reason=actor.reason,
            load=ReplicaLoad(
                actor.inflight,
                actor.load["requests"],
                actor.load["duration_us"],
                actor.load["cpu_s"],
            ),
            at_s=self.now,
        )

    def serving(self):
        return sum(each.state is ServingState.READY for each in self.actors.values())

    def ready(self):
        """The places that fronts send new requests to."""
        places = self.deployment.places()
        return [each for each in places if not each.is_draining and not each.is_asleep]

    def group(self, name="g"):
        return next(each for each in self.deployment.status().groups if each.name == name)
