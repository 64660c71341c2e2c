"""ResourceLimiter: instances share resources, and an execution waits until those it needs are free.

These are the rules of Triton's rate limiter (--rate-limit=execution_count, and rate_limiter in an
instance_group). An instance takes all it needs at once or nothing, so there is no deadlock. Among
waiting instances, the one that has run least goes first, where a run of an instance with priority
p counts p times; one whose resources are taken is overtaken only by instances that need none of
them.

An instance waits in its own thread, holding nothing, before it takes the next request, which can
thus still time out or be given up. Instances that need resources never run on the event loop, and
schedulers know nothing of all this.
"""

import threading
from collections.abc import Iterator, Sequence
from itertools import count

from inferd.config.model import RateLimiterResource
from inferd.config.options.backends import Limits
from inferd.core.interfaces import AsyncInstance, DecoupledInstance, Instance, Placement
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import InstanceTraits, traits_of
from inferd.errors import InferdError, InvalidConfig, Unavailable

ResourceKey = tuple[str, int | None]
"""A resource by name, of one device or (None) of all devices together."""


class ResourceLimiter:
    """The resources that all models' instances share. Its methods may be called in any thread.

    `limits` is how much of each there is; of one not listed there is as much as the neediest
    loaded instance needs.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._together = _without_devices(limits)
        # One lock for all models: a grant looks at all claims, and runs that need resources are
        # long.
        self._changed = threading.Condition()
        self._claims: list[Claim] = []
        self._waiting: list[Claim] = []
        self._taken: dict[ResourceKey, int] = {}
        self._numbers = count()

    def enter(self, model: str, place: Placement) -> "Claim":
        """Register an instance that has a rate limiter, and return its claim.

        Raises InvalidConfig when there will never be as much as it needs, or when a resource is
        per device in one place and global in another.
        """
        limiter = place.rate_limiter
        assert limiter is not None
        needs = {
            (one.name, None if one.is_global else place.device_id): one.count
            for one in limiter.resources
        }
        with self._changed:
            for one in limiter.resources:
                self._check(model, one, place)
            claim = Claim(self, needs, max(1, limiter.priority))
            # A newcomer with 0 runs would come first until it had caught up with all that ran since
            # the start.
            claim.runs = min((other.runs for other in self._claims), default=0)
            self._claims.append(claim)
        return claim

    def leave(self, claim: "Claim") -> None:
        """Forget a claim. If it is waiting, its wait ends with Unavailable."""
        with self._changed:
            claim.has_left = True
            if claim in self._claims:
                self._claims.remove(claim)
            self._grant()
            # Each waits for its own claim, so waking just one could wake the wrong one.
            self._changed.notify_all()

    def acquire(self, claim: "Claim") -> None:
        """Wait for all that `claim` needs, and take it. Raises Unavailable if it leaves."""
        with self._changed:
            claim.number = next(self._numbers)
            self._waiting.append(claim)
            self._grant()
            while not claim.is_granted and not claim.has_left:
                self._changed.wait()
            if not claim.is_granted:
                self._waiting.remove(claim)
                raise Unavailable("the model was unloaded while it waited for its resources")

    def release(self, claim: "Claim") -> None:
        """Give back what `claim` took."""
        with self._changed:
            self._give_back(claim)
            self._grant()

    def renew(self, claim: "Claim") -> None:
        """Release and acquire: waiting claims whose turn comes first run in between.

        `claim` itself competes: after a mere release it would always come too late.
        Raises as `acquire` does.
        """
        with self._changed:
            self._give_back(claim)
            # The condition's lock is reentrant, so nobody gets in between.
            self.acquire(claim)

    def _give_back(self, claim: "Claim") -> None:
        """Take back what `claim` holds, and count its run; do nothing if it holds nothing."""
        if not claim.is_granted:
            return
        for pool, needed in claim.needs.items():
            self._taken[pool] -= needed
        claim.is_granted = False
        claim.runs += claim.weight

    def _grant(self) -> None:
        """Grant the claims whose turn it is."""
        blocked: set[ResourceKey] = set()
        for claim in sorted(self._waiting, key=lambda one: (one.runs, one.number)):
            pools = claim.needs.keys()
            # What an earlier claim needs is kept from later ones, so that one that needs much is
            # not overtaken for ever by some that need little.
            if pools & blocked or not all(self._has(p, n) for p, n in claim.needs.items()):
                blocked |= pools
                continue
            for pool, needed in claim.needs.items():
                self._taken[pool] = self._taken.get(pool, 0) + needed
            claim.is_granted = True
            self._waiting.remove(claim)
            self._changed.notify_all()

    def _has(self, pool: ResourceKey, needed: int) -> bool:
        return self._taken.get(pool, 0) + needed <= self._size(pool)

    def _size(self, pool: ResourceKey) -> int:
        limit = self._limit(pool)
        if limit is not None:
            return limit
        # Triton's rule for a resource without a limit.
        return max((claim.needs.get(pool, 0) for claim in self._claims), default=0)

    def _limit(self, pool: ResourceKey) -> int | None:
        name, device = pool
        if device is None:
            return self._together.get(name)
        return self._limits.get(pool, self._limits.get((name, None)))

    def _check(self, model: str, one: RateLimiterResource, place: Placement) -> None:
        where = f"model '{model}', instance '{place.name}': rate_limiter resource '{one.name}'"
        limiter = place.rate_limiter
        own = limiter.resources if limiter is not None else ()
        kinds = {device is None for c in self._claims for n, device in c.needs if n == one.name}
        kinds |= {other.is_global for other in own if other.name == one.name}
        if len(kinds | {one.is_global}) > 1:
            msg = f"{where} is global in one place and belongs to a device in another"
            raise InvalidConfig(msg)
        limit = self._limit((one.name, None if one.is_global else place.device_id))
        if limit is not None and one.count > limit:
            msg = f"{where} is needed {one.count} times, --rate-limit-resource has {limit} of it"
            raise InvalidConfig(msg)


def _without_devices(limits: Limits) -> dict[str, int]:
    """Return how much there is of what all devices share, of which Triton ignores the device.

    Of several limits the one without a device counts, or else the largest.
    """
    found: dict[str, int] = {}
    for (name, _), limit in limits.items():
        found[name] = max(limit, found.get(name, 0))
    return found | {name: limit for (name, device), limit in limits.items() if device is None}


class Claim:
    """What one instance needs, how often it has run, and whether it may run now."""

    def __init__(
        self, limiter: ResourceLimiter, needs: dict[ResourceKey, int], weight: int
    ) -> None:
        self.needs = needs
        self.weight = weight
        self.runs = 0
        self.number = 0
        self.is_granted = False
        self.has_left = False
        self._limiter = limiter
        self._depth = 0

    def __enter__(self) -> None:
        """Wait for the resources, unless its (only) thread has them. Raises Unavailable."""
        if not self._depth:
            self._limiter.acquire(self)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Give the resources back on leaving the outermost `with`."""
        self._depth -= 1
        if not self._depth:
            self._limiter.release(self)

    def renew(self) -> None:
        """Let claims whose turn is before its next one run. Raises Unavailable."""
        self._limiter.renew(self)

    def leave(self) -> None:
        """Leave the limiter."""
        self._limiter.leave(self)


class LimitedInstance:
    """The instance `inner`, made to wait for its resources before each execution.

    Its thread may enter `turn` before, and has them then. One that works elsewhere is told of
    requests that nobody waits for.
    """

    def __init__(self, instance: Instance, claim: Claim) -> None:
        self.inner = instance
        self.turn = claim
        self.traits = InstanceTraits(
            is_bounded=False,  # the wait may be long
            works_elsewhere=isinstance(instance, AsyncInstance),
            turn=claim,
            verdict=traits_of(instance).verdict,
        )

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """See Instance.execute. Raises Unavailable when the instance is closed while it waits."""
        with self.turn:
            return self.inner.execute(requests)

    def cancel(self, requests: Sequence[InferRequest]) -> None:
        """See CancellableInstance.cancel."""
        if isinstance(self.inner, AsyncInstance):
            self.inner.cancel(requests)

    def close(self) -> None:
        """See Instance.close."""
        self.turn.leave()
        self.inner.close()


class LimitedDecoupledInstance(LimitedInstance):
    """The same for a decoupled model, whose execution is a whole stream."""

    inner: DecoupledInstance

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """See DecoupledInstance.stream."""
        with self.turn:
            yield from self.inner.stream(request)


def limited(instance: Instance, claim: Claim) -> Instance:
    """Return `instance`, wrapped to run under `claim`."""
    if isinstance(instance, DecoupledInstance):
        return LimitedDecoupledInstance(instance, claim)
    return LimitedInstance(instance, claim)
