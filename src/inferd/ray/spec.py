"""What is to run on a Ray cluster: groups of replicas, as a models.toml says it."""

import hashlib
import math

import msgspec

DEFAULT_NAME = "inferd"
"""The deployment that is meant where none is named."""


class ScalingRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas a group has, from `least` to `most`, and what makes them more or fewer.

    `pending` is how many requests are under way in a replica, on average, and `cpu` which share of
    its cores it uses, when it has enough to do; `latency_ms` how long requests may take on average,
    0: however long. What is more than that for `up_after_s` makes replicas more, what is less for
    `down_after_s` fewer. If `least` is 0, `idle_s` without a request end the last replica.
    """

    least: int = 1
    most: int = 1
    pending: float = 2.0
    cpu: float = 0.8
    latency_ms: float = 0.0
    up_after_s: float = 3.0
    down_after_s: float = 60.0
    idle_s: float = 300.0

    @property
    def is_fixed(self) -> bool:
        """Whether the number never changes by itself."""
        return self.least == self.most


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that are alike: each serves `models`, which are repositories or single models.

    `arguments` are further ones of `inferd serve`. `surge`: how many replicas more than wanted
    there may be while they are replaced; 0: one fewer instead. A replica that is not ready after
    `ready_timeout_s` has failed, one that has not ended `stop_timeout_s` after SIGTERM is killed.
    """

    name: str
    models: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0
    resources: dict[str, float] = {}
    scaling: ScalingRule = ScalingRule()
    surge: int = 1
    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 60.0

    @property
    def needs(self) -> dict[str, float]:
        """What a replica takes of a node, by Ray's names of resources."""
        all_needs = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory_bytes)}
        return {name: count for name, count in (all_needs | self.resources).items() if count}

    def revision(self, generation: int) -> str:
        """Return a short text that differs if a replica must be replaced: by what it is made of.

        How many there are is no part of it; `generation` is, to replace those that are alike.
        """
        # Sorted, as the order of keys in the file is no reason to replace anything.
        made_of = msgspec.json.encode(
            (self.models, self.arguments, self.environment, self.needs, generation), order="sorted"
        )
        return hashlib.sha256(made_of).hexdigest()[:8]


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All groups. `generation` grows when replicas are to be replaced by others that are alike."""

    name: str = DEFAULT_NAME
    groups: tuple[GroupSpec, ...] = ()
    generation: int = 0


def replicas_for(load: float, wanted_load: float) -> int:
    """Return how many replicas share `load` with at most `wanted_load` for each, a tenth aside."""
    # A tenth aside: a load that lies at the border would swing between two numbers.
    return math.ceil(load / wanted_load / 1.1)
