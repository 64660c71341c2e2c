"""What a controller tells of a deployment, to whoever asks: people, and fronts."""

import msgspec


class ReplicaPlace(msgspec.Struct, frozen=True):
    """Where a replica serves; `models` None: any. `is_draining`: it is going to end.

    `is_asleep`: it is a group of that name, which has no replica until it is woken, and had these
    models; there are no ports.
    """

    name: str
    host: str
    http_port: int
    grpc_port: int
    models: tuple[str, ...] | None
    is_draining: bool = False
    is_asleep: bool = False


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica; `phase` is one of inferd.ray.replica, or silent, or lost."""

    name: str
    phase: str
    is_current: bool
    age_s: float
    node: str = ""
    host: str = ""
    http_port: int = 0
    grpc_port: int = 0
    pid: int = 0
    models: tuple[str, ...] | None = None
    pending: float = 0.0
    rate: float = 0.0
    latency_ms: float = 0.0
    reason: str = ""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group: it is settled when it is as wanted, given up when it will not be."""

    name: str
    desired: int
    least: int
    most: int
    is_settled: bool
    is_given_up: bool
    reason: str
    models: tuple[str, ...]
    replicas: tuple[ReplicaStatus, ...]


class DeploymentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of a deployment; `warnings` are for the person who runs it."""

    name: str
    version: str
    groups: tuple[GroupStatus, ...]
    warnings: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether everything is as wanted."""
        return all(each.is_settled for each in self.groups)

    @property
    def is_given_up(self) -> bool:
        """Whether some group is given up, and all others are as wanted or given up, too."""
        is_over = all(each.is_settled or each.is_given_up for each in self.groups)
        return is_over and any(each.is_given_up for each in self.groups)
