"""Owned: the versions of models in this process, as requests of other processes find them."""

from collections.abc import AsyncGenerator, Coroutine
from typing import Protocol

from inferd.core.interfaces import SequenceKeeper
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError, Unavailable


class Owned(SequenceKeeper, Protocol):
    """A version that runs requests of other processes in this one.

    `form` is the same for all versions that take and give the same. One that `is_leaving` has been
    replaced or unloaded, here. It can only run requests if it `has_instances`.
    """

    model: str
    version: str
    form: bytes
    is_leaving: bool
    has_instances: bool

    def run_here_now(self, request: InferRequest) -> InferResponse | None:
        """Return the answer if there is one without waiting; see PromptScheduler.run_now."""
        ...

    def run_here(self, request: InferRequest) -> Coroutine[object, None, InferResponse]:
        """Return what runs a request that belongs to this process; see Scheduler.run."""
        ...

    def stream_here(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return what `run_here` does, for any number of answers; see Scheduler.stream."""
        ...

    def check(self, request: InferRequest, response: InferResponse) -> None:
        """Raise as ResponseCheck.check does."""
        ...


class OwnedVersions:
    """The versions that other processes may send requests to.

    All processes change a version at nearly the same time. Meanwhile each has both: those that have
    changed already and those that have not find theirs by its form, and of two that are alike the
    one that serves. If only one of these has instances, as when this process gets its first one or
    has lost its last one, it is that.
    """

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], list[Owned]] = {}

    def add(self, owned: Owned) -> None:
        """Let requests find `owned`, in any thread."""
        self._versions.setdefault((owned.model, owned.version), []).append(owned)

    def remove(self, owned: Owned) -> None:
        """Let no request find `owned` any more."""
        key = owned.model, owned.version
        left = [one for one in self._versions.get(key, ()) if one is not owned]
        if left:
            self._versions[key] = left
        else:
            self._versions.pop(key, None)

    @property
    def sequence_count(self) -> int:
        """How many sequences live here."""
        return sum(one.sequence_count for several in self._versions.values() for one in several)

    def has_sequence(self, model: str, version: str, id: int | str) -> bool:
        """Tell whether a sequence lives here."""
        return any(one.has_sequence(id) for one in self._versions.get((model, version), ()))

    def find(self, request: InferRequest, form: bytes) -> Owned:
        """Return the version `request` is for. Raises Unavailable when it is not here."""
        alike = [
            one
            for one in self._versions.get((request.model, request.version), ())
            if one.form == form and one.has_instances
        ]
        for one in alike:
            if not one.is_leaving:
                return one
        if alike:
            # All are leaving: the newest one.
            return alike[-1]
        raise absent(request.model, request.version)


def absent(model: str, version: str) -> InferdError:
    """Return the error for a request whose owner does not have the version."""
    msg = (
        f"model '{model}' version {version} is being loaded or unloaded in the process of the "
        f"server that runs it"
    )
    return Unavailable(msg)


class AbsentScheduler:
    """The local scheduler of a version all whose instances are in other processes."""

    @property
    def pending_count(self) -> int:
        """See Scheduler.pending_count."""
        return 0

    async def run(self, request: InferRequest) -> InferResponse:
        """Raise Unavailable: who sent it here does not know yet where the instances are."""
        raise absent(request.model, request.version)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """See `run`."""
        raise absent(request.model, request.version)
        yield  # which makes this a generator

    async def close(self, timeout_s: float) -> None:
        """See Scheduler.close."""
