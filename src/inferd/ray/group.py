"""ReplicaGroup: decides which replicas of a group are started and stopped; no Ray, no clock.

It hears what replicas report and what became of them, and tells a ReplicaShell what to do. Each
look at the time (`tick`) brings what there is one step nearer to what is wanted:

- Replicas of an older revision are replaced: with a surge, a new one is ready before an old one
  leaves; without, an old one leaves first. If no new one gets ready, the rest of the old ones stay.
- One that is to leave is drained: fronts are given time to hear of it, then it gets SIGTERM and
  finishes what is under way. It is away when its server has ended.
- One that ends by itself is replaced, after a wait if it had not served for long.
"""

from collections.abc import Callable
from typing import Protocol

from inferd.ray.attempts import FORGIVEN_S, StartAttempts
from inferd.ray.replica import SILENT_S, Phase, Replica, ReplicaReport, ServingState
from inferd.ray.scaling import GroupLoad, Scaling
from inferd.ray.spec import GroupSpec
from inferd.ray.status import GroupStatus, ReplicaStatus

SETTLE_S = 1.0
"""How long fronts have to hear that a replica drains before it gets SIGTERM."""

LOOK_S = 1.0
"""How often the load is looked at."""

GONE_S = 3.0
"""A replica that is silent and whose server does not answer is replaced after so long."""


class ReplicaShell(Protocol):
    """What a group makes happen; each comes back as a report, or as the loss of the replica."""

    def start(self, replica: Replica, spec: GroupSpec) -> None:
        """Have Ray run a replica."""
        ...

    def stop(self, replica: Replica) -> None:
        """Give SIGTERM to its server."""
        ...

    def remove(self, replica: Replica, *, force: bool) -> None:
        """End the actor, which has no server any more; with `force`, whatever there is."""
        ...

    def probe(self, replica: Replica) -> None:
        """Look whether the server of a replica that says nothing answers: see `probed`."""
        ...


class ReplicaGroup:
    """The replicas of one group. `clock` tells the time in seconds, `next_number` a new number."""

    def __init__(
        self,
        spec: GroupSpec,
        generation: int,
        shell: ReplicaShell,
        clock: Callable[[], float],
        next_number: Callable[[], int],
    ) -> None:
        self.spec = spec
        self.revision = spec.revision(generation)
        self.replicas: dict[int, Replica] = {}
        self.is_removed = False
        """Whether all of it is to end."""
        self._shell = shell
        self._clock = clock
        self._next_number = next_number
        self._attempts = StartAttempts()
        self._scaling = Scaling(spec.scaling, spec.scaling.least or 1, clock())
        self._looked_s = clock()
        self.models: tuple[str, ...] = ()
        """Those that a replica had when there was one."""

    @property
    def desired(self) -> int:
        """How many replicas there should be."""
        return 0 if self.is_removed else self._scaling.desired

    @property
    def may_sleep(self) -> bool:
        """Whether it may have no replica, and it is known which models would be there."""
        return not self.is_removed and self.spec.scaling.least == 0 and bool(self.models)

    def become(self, spec: GroupSpec, generation: int) -> None:
        """Go on by another spec; replicas are replaced if their revision differs."""
        now = self._clock()
        self.spec = spec
        self.is_removed = False
        self.revision = spec.revision(generation)
        self._attempts = StartAttempts()  # whoever deploys has perhaps mended it
        if any(each.is_ready for each in self._staying()[0]):
            self._attempts.served()
        self._scaling.become(spec.scaling, now)

    def scale(self, count: int) -> None:
        """Have `count` replicas, within the bounds of the spec."""
        self._scaling.force(count, self._clock())

    def wake(self) -> None:
        """Have a replica, if there is none: a request is waiting."""
        self._scaling.wake(self._clock())

    def adopt(self, number: int, revision: str) -> None:
        """Take over a replica that a controller before this one has started."""
        now = self._clock()
        self.replicas[number] = Replica(number, self.spec.name, revision, now, now, now)
        # As many as there are: the controller before had its reasons, and
        # the load decides again from here.
        self._scaling.force(max(len(self.replicas), self.spec.scaling.least), now)

    def report(self, number: int, report: ReplicaReport) -> None:
        """Take in what a replica says."""
        if (replica := self.replicas.get(number)) is None:
            return
        now = self._clock()
        replica.heard_s = now
        replica.is_unheard = replica.is_silent = False
        replica.report = report
        if report.state is ServingState.ENDED:
            self._ended(replica, report.reason)
            return
        if replica.phase is Phase.PLACING:
            replica.enter(Phase.LOADING, now)
            replica.reason = ""
        # Somebody sent it SIGTERM, an operator or the node's shutdown: it drains, and is replaced
        # without counting as a failure.
        if report.state is ServingState.ENDING and not replica.is_leaving:
            replica.enter(Phase.STOPPING, now)  # by somebody else
        if report.state is ServingState.READY and replica.phase is Phase.LOADING:
            replica.enter(Phase.READY, now)
            replica.ready_s = now
            self._attempts.served()
            # Remembered for when the group sleeps: by these names, requests find what to wake.
            self.models = report.models or ()
        if replica.phase is Phase.LOADING:
            replica.reason = report.reason

    def lost(self, number: int, reason: str) -> None:
        """Hear that the actor of a replica has ended, or is as good as that.

        Its server drains, if it can, and is a place as long as it says that it is ready.
        """
        replica = self.replicas.get(number)
        if replica is None or replica.is_lost:
            return
        if not replica.is_leaving:
            self._failed(replica, reason)
        # After _failed, for which it is still one that served.
        replica.is_lost = True
        self._shell.probe(replica)

    def probed(self, number: int, *, answers: bool) -> None:
        """Hear whether the server of a silent, or lost, replica says that it is ready."""
        if (replica := self.replicas.get(number)) is None:
            return
        if replica.is_lost:
            # Ray says that machines which it cannot reach have ended, too; the
            # server is asked itself (decision 0037).
            if not answers:
                self._forget(replica, force=False)
        # A report may have come while the probe was on its way.
        elif self._clock() - replica.heard_s >= SILENT_S:
            replica.is_unheard = not answers

    def hint(self, number: int, reason: str) -> None:
        """Note what a replica waits for that Ray has not placed yet."""
        replica = self.replicas.get(number)
        if replica is not None and replica.phase is Phase.PLACING:
            replica.reason = reason

    def tick(self, *, believes_silence: bool) -> None:
        """Do what is due. With `believes_silence`, replicas that are not heard are away."""
        now = self._clock()
        for replica in list(self.replicas.values()):
            self._advance(replica, now)
            replica.is_silent = replica.is_unheard and believes_silence
            is_gone = replica.is_silent and now - replica.heard_s >= SILENT_S + GONE_S
            if is_gone and not replica.is_leaving:
                where = replica.report.node or "its node"
                self.lost(replica.number, f"{where} does not answer")
        if now - self._looked_s >= LOOK_S:
            self._look(now)
        self._stop_some(now)
        self._start_some(now)

    def status(self) -> GroupStatus:
        """Return how it is, and how far from what is wanted."""
        current, _ = self._staying()
        scaling = self.spec.scaling
        ready = sum(each.is_ready for each in current)
        is_settled = ready == len(self.replicas) == self.desired
        is_given_up = not is_settled and self._attempts.is_given_up
        reason = self._attempts.reason
        if is_given_up:
            reason = f"given up after {self._attempts.failure_count} attempts: {reason}"
        if not reason:
            waiting = (each.reason for each in current if not each.is_ready and each.reason)
            reason = next(waiting, "")
        return GroupStatus(
            name=self.spec.name,
            desired=self.desired,
            least=scaling.least,
            most=scaling.most,
            is_settled=is_settled,
            is_given_up=is_given_up,
            reason="" if is_settled else reason,
            models=self.models,
            replicas=tuple(map(self._status_of, self.replicas.values())),
        )

    def _status_of(self, replica: Replica) -> ReplicaStatus:
        phase = replica.phase.value
        if replica.is_lost or replica.is_silent:
            phase = "lost" if replica.is_lost else "silent"
        report = replica.report
        return ReplicaStatus(
            name=replica.name,
            phase=phase,
            is_current=replica.revision == self.revision,
            age_s=self._clock() - replica.began_s,
            node=report.node,
            host=report.host,
            http_port=report.http_port,
            grpc_port=report.grpc_port,
            pid=report.pid,
            models=report.models,
            pending=replica.load.pending,
            rate=replica.load.rate,
            latency_ms=replica.load.latency_ms,
            reason=replica.reason,
        )

    def _staying(self) -> tuple[list[Replica], list[Replica]]:
        """Return the replicas that are not leaving: of the present revision, and of others."""
        staying = [each for each in self.replicas.values() if not each.is_leaving]
        current = [each for each in staying if each.revision == self.revision]
        return current, [each for each in staying if each.revision != self.revision]

    def _advance(self, replica: Replica, now: float) -> None:
        """Bring a replica on whose time has come."""
        age_s = now - replica.since_s
        silent_s = now - replica.heard_s
        if replica.is_lost or (replica.phase is not Phase.PLACING and silent_s >= SILENT_S):
            self._shell.probe(replica)
        if replica.is_lost:
            return
        match replica.phase:
            case Phase.LOADING if age_s >= self.spec.ready_timeout_s:
                waits = f": {replica.reason}" if replica.reason else ""
                reason = f"not ready after {self.spec.ready_timeout_s:g} s{waits}"
                self._failed(replica, reason)
                self._stop(replica, reason, now)
            # Only those of the present revision say anything about its starts.
            case Phase.READY if replica.revision == self.revision:
                if replica.served_s(now) >= FORGIVEN_S:
                    self._attempts.settled()
            case Phase.DRAINING if age_s >= SETTLE_S:
                self._shell.stop(replica)
                replica.enter(Phase.STOPPING, now)
            case Phase.STOPPING if age_s >= self.spec.stop_timeout_s:
                self._forget(replica, force=True)

    def _ended(self, replica: Replica, reason: str) -> None:
        if replica.phase is not Phase.STOPPING:
            self._failed(replica, reason)
        self._forget(replica, force=False)

    def _failed(self, replica: Replica, reason: str) -> None:
        """Note that a replica has ended by itself, or must be ended: others like it may, too."""
        now = self._clock()
        if replica.revision == self.revision:
            self._attempts.failed(reason, now, served_s=replica.served_s(now))

    def _forget(self, replica: Replica, *, force: bool) -> None:
        del self.replicas[replica.number]
        # A lost actor cannot be asked to end itself.
        self._shell.remove(replica, force=force or replica.is_lost)

    def _stop(self, replica: Replica, reason: str, now: float) -> None:
        """Begin the end of a replica; one that fronts do not know has no need to wait."""
        replica.reason = reason
        if replica.phase is Phase.READY:
            replica.enter(Phase.DRAINING, now)
        elif replica.phase is Phase.PLACING:
            self._forget(replica, force=True)
        else:
            self._shell.stop(replica)
            replica.enter(Phase.STOPPING, now)

    def _stop_some(self, now: float) -> None:
        """Stop what is too much: of the old revision first, then those that serve nothing."""
        current, old = self._staying()
        ready = sum(each.is_ready for each in (*current, *old))
        # Without a surge, one old replica has to go before there is room; but not for replicas that
        # are given up: the old ones then serve on.
        is_waiting = len(current) < self.desired and not self._attempts.is_given_up
        least = self.desired if self.spec.surge or not is_waiting else self.desired - 1
        # False sorts first: what serves nothing goes before what serves.
        for replica in sorted(old, key=lambda each: each.is_ready):
            if not replica.is_ready:
                self._stop(replica, "replaced", now)
            elif ready > least:
                ready -= 1
                self._stop(replica, "replaced", now)
        extra = len(current) - self.desired
        # Those that are still loading, then those with the least to do.
        victims = sorted(current, key=lambda each: (each.is_ready, each.report.load.inflight))
        for replica in victims[: max(extra, 0)]:
            self._stop(replica, "not needed", now)

    def _start_some(self, now: float) -> None:
        current, old = self._staying()
        missing = self.desired - len(current)
        # Only while old ones are replaced may there be more than are wanted.
        room = self.desired + (self.spec.surge if old else 0) - len(current) - len(old)
        if self._attempts.failure_count and not any(each.is_ready for each in current):
            room = min(room, 1 - len(current))  # one at a time, until it is known whether any can
        if self._attempts.is_given_up or now < self._attempts.due_s:
            return
        for _ in range(min(missing, room)):
            number = self._next_number()
            replica = Replica(number, self.spec.name, self.revision, now, now, now)
            self.replicas[number] = replica
            self._shell.start(replica, self.spec)

    def _look(self, now: float) -> None:
        """Give the load since the last look to what decides the number."""
        self._looked_s = now
        ready = [each for each in self.replicas.values() if each.is_ready]
        for replica in ready:
            replica.measure()
        loads = [each.load for each in ready]
        cpus = self.spec.cpus
        answered = sum(each.rate for each in loads)
        load = GroupLoad(
            pending=sum(each.pending for each in loads),
            # Per core that a replica was given: the share that the rule speaks of.
            cpu=sum(each.cores for each in loads) / cpus if cpus else 0.0,
            latency_ms=sum(each.latency_ms * each.rate for each in loads) / (answered or 1.0),
            is_active=any(each.pending or each.rate for each in loads),
        )
        self._scaling.look(load, len(ready), now)
