"""Deployment: decides what all groups of a deployment do; no Ray, no sockets, no clock.

It hears what happened (a report, a loss, the time) and tells a ReplicaShell what to do. So a
simulation can drive it through any order of events.
"""

from collections.abc import Callable, Iterator

import inferd
from inferd.errors import InvalidRequest
from inferd.ray.group import ReplicaGroup, ReplicaShell
from inferd.ray.replica import Phase, Replica, ReplicaReport
from inferd.ray.spec import DeploymentSpec, GroupSpec
from inferd.ray.status import DeploymentStatus, ReplicaPlace

PATIENT_S = 3600.0
"""A node that does without Ray's head for a shorter time is worth a warning."""


class Deployment:
    """The groups of one deployment; times in seconds, on `clock`."""

    def __init__(self, name: str, shell: ReplicaShell, clock: Callable[[], float]) -> None:
        self._name = name
        self._shell = shell
        self._clock = clock
        self._groups: dict[str, ReplicaGroup] = {}
        self._last_number = 0

    def become(self, spec: DeploymentSpec) -> None:
        """Bring about what `spec` says from now on; groups that it lacks are ended."""
        named = {each.name: each for each in spec.groups}
        for name, group in self._groups.items():
            group.is_removed = name not in named
        for name, one in named.items():
            if name in self._groups:
                self._groups[name].become(one, spec.generation)
            else:
                self._groups[name] = ReplicaGroup(
                    one, spec.generation, self._shell, self._clock, self._next_number
                )

    def adopt(self, group: str, revision: str, number: int) -> None:
        """Take over a replica of an earlier controller; one of a group that is gone is ended."""
        # Numbers are in the names of actors, which must not be used twice.
        self._last_number = max(self._last_number, number)
        if group not in self._groups:
            # A controller that ended before the last of them had drained left them: they are known
            # again, so as to be ended in order.
            gone = GroupSpec(name=group, models=())
            self._groups[group] = ReplicaGroup(gone, 0, self._shell, self._clock, self._next_number)
            self._groups[group].is_removed = True
        self._groups[group].adopt(number, revision)

    def scale(self, group: str, count: int) -> None:
        """Have `count` replicas of a group, within its bounds. Raises InvalidRequest."""
        self._named(group).scale(count)

    def wake(self, group: str) -> None:
        """Have a replica of a group that has none. Raises InvalidRequest."""
        self._named(group).wake()

    def report(self, number: int, report: ReplicaReport) -> None:
        """Take in what a replica says."""
        for group in self._groups.values():
            group.report(number, report)

    def lost(self, number: int, reason: str) -> None:
        """Hear that the actor of a replica has ended by itself."""
        for group in self._groups.values():
            group.lost(number, reason)

    def probed(self, number: int, *, answers: bool) -> None:
        """Hear whether the server of a silent, or lost, replica says that it is ready."""
        for group in self._groups.values():
            group.probed(number, answers=answers)

    def hint(self, number: int, reason: str) -> None:
        """Note what a replica waits for that Ray has not placed yet."""
        for group in self._groups.values():
            group.hint(number, reason)

    def tick(self) -> None:
        """Do what is due."""
        believes_silence = self._believes_silence()
        for group in self._groups.values():
            group.tick(believes_silence=believes_silence)
        self._groups = {
            name: each
            for name, each in self._groups.items()
            if each.replicas or not each.is_removed
        }

    def replicas(self) -> Iterator[Replica]:
        """Yield all replicas that there are."""
        for group in self._groups.values():
            yield from group.replicas.values()

    def needs(self, number: int) -> dict[str, float]:
        """Return the resources that a replica takes."""
        for group in self._groups.values():
            if number in group.replicas:
                return group.spec.needs
        return {}

    def places(self) -> tuple[ReplicaPlace, ...]:
        """Return where requests can be sent, and what has to be woken for that.

        A silent replica is no place only if its server does not answer either.
        """
        # One that drains or stops is still a place, marked as draining: requests of a sequence go
        # on there, and fronts take it out only once others have its models.
        serving = (Phase.READY, Phase.DRAINING, Phase.STOPPING)
        places = tuple(
            ReplicaPlace(
                each.name,
                each.report.host,
                each.report.http_port,
                each.report.grpc_port,
                each.report.models,
                each.phase is not Phase.READY,
            )
            for each in self.replicas()
            if each.phase in serving and each.ready_s is not None and not each.is_silent
        )
        named = {each.name for each in places}
        asleep = (
            ReplicaPlace(name, "", 0, 0, group.models, is_asleep=True)
            for name, group in self._groups.items()
            if group.may_sleep and named.isdisjoint(one.name for one in group.replicas.values())
        )
        return (*places, *asleep)

    def status(self) -> DeploymentStatus:
        """Return how everything is."""
        return DeploymentStatus(
            name=self._name,
            version=inferd.__version__,
            groups=tuple(each.status() for each in self._groups.values()),
            warnings=tuple(self._warnings()),
        )

    def _believes_silence(self) -> bool:
        """Whether replicas that say nothing are away: not if most are, as then this side may be."""
        heard = [each for each in self.replicas() if each.phase is not Phase.PLACING]
        # Ray tells a machine that is gone from a network that is split no better
        # than we do. To replace most replicas because this node cannot be
        # reached would double the load for nothing.
        return 2 * sum(each.is_unheard for each in heard) <= len(heard)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _named(self, name: str) -> ReplicaGroup:
        group = self._groups.get(name)
        if group is None or group.is_removed:
            known = ", ".join(self._groups) or "none"
            msg = f"there is no group {name!r} in deployment {self._name!r}, only {known}"
            raise InvalidRequest(msg)
        return group

    def _warnings(self) -> Iterator[str]:
        short = {
            each.report.node: each.report.reconnect_s
            for each in self.replicas()
            if each.report.node and each.report.reconnect_s < PATIENT_S
        }
        for node, seconds in sorted(short.items()):
            yield (
                f"node {node} ends all that runs there {seconds:g} s after Ray's head has ended: "
                f"start Ray with RAY_gcs_rpc_server_reconnect_timeout_s=86400 in its environment"
            )
