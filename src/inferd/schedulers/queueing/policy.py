"""Queue policies: how many requests may wait and how long, and the errors beyond that."""

from inferd.config.model import DynamicBatching, QueuePolicy
from inferd.core.request import InferRequest
from inferd.errors import InferdError, Overloaded, Unavailable

# Triton has no limit; then a model that hangs takes memory until the process ends.
MAX_WAITING = 10_000
"""How many requests of one model may wait where its policy sets no limit."""

UNSET = QueuePolicy(allow_timeout_override=True)
"""The policy where the configuration has none: only the request's own timeout counts."""

AT_ONCE = QueuePolicy()
"""The policy for a request that has already waited, under its timeout, in another queue."""

NESTED_US = 30_000_000
"""How long a request made by another request may wait: models that call each other could wait
forever."""


class Levels:
    """The priority levels of a model's requests (1 is the highest) and the policy of each."""

    def __init__(self, batching: DynamicBatching | None) -> None:
        self._count = batching.priority_levels if batching else 0
        self.default = batching.default_priority_level if batching and self._count else 0
        self._default_policy = (batching and batching.default_queue_policy) or UNSET
        self._policies = batching.priority_queue_policy if batching and self._count else {}

    def of(self, request: InferRequest) -> int:
        """Return the level of a request: the default for priority 0 or one that does not exist.

        It is 0 where there are no levels.
        """
        number = request.priority
        # Triton takes a level that does not exist for the default.
        return number if 0 < number <= self._count else self.default

    def policy(self, level: int) -> QueuePolicy:
        """Return the policy of a level."""
        return self._policies.get(level, self._default_policy)


def timeout_us_of(policy: QueuePolicy, request: InferRequest) -> int:
    """Return how long `request` may wait; 0 means forever.

    Its own timeout counts if the policy allows that and it is shorter than the policy's.
    """
    timeout_us, own_us = policy.default_timeout_microseconds, request.timeout_us
    # Triton: a client's timeout may only shorten the policy's.
    if own_us and policy.allow_timeout_override and (own_us < timeout_us or policy is UNSET):
        timeout_us = own_us
    if request.callers:
        return min(timeout_us or NESTED_US, NESTED_US)
    return timeout_us


def full(model: str, policy: QueuePolicy) -> InferdError:
    """Return the error for a request that finds as many waiting as `policy` allows.

    Its first words, and those of `too_late`, are Triton's: clients compare them.
    """
    most = policy.max_queue_size
    said = f"its max_queue_size is {most}" if most else f"{MAX_WAITING} requests wait"
    return Overloaded(
        f"Exceeds maximum queue size: the queue of model '{model}' is full: {said}; try again later"
    )


def unloading(model: str) -> InferdError:
    """Return the error for requests that arrive while the model is being unloaded."""
    return Unavailable(f"model '{model}' is being unloaded")


def too_late(model: str, timeout_us: int) -> InferdError:
    """Return the error for a request that has waited for `timeout_us`, its limit."""
    return Unavailable(
        f"Request timeout expired: model '{model}': the request has waited for {timeout_us} "
        f"microseconds, which is its timeout in the queue"
    )
