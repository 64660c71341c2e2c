"""Regions: the shared memory that clients have registered, by the clients' names for it."""

from collections.abc import Callable
from typing import TypeVar

from inferd.aio.round_number import RoundNumber
from inferd.core.change import AddCudaRegion, AddSystemRegion, Agreement, DropRegions
from inferd.core.metadata import CudaRegionStatus, SystemRegionStatus
from inferd.core.request import Span
from inferd.errors import (
    AlreadyExists,
    InvalidRequest,
    RegionFailed,
    RegionNotFound,
    Unavailable,
    Unsupported,
)
from inferd.shm.cuda import CudaDriver, CudaRegion, cuda_driver
from inferd.shm.mapping import IS_SUPPORTED
from inferd.shm.system import SystemRegion

MAX_REGIONS = 1024
"""How many may be registered at a time: each keeps a file open."""

MAX_NAME_BYTES = 1024
"""The longest name of a region."""

Region = SystemRegion | CudaRegion
_Kind = TypeVar("_Kind", bound=Region)


class Regions:
    """All registered regions; both kinds share one namespace, since requests use only the name.

    Unless `allowed`, nothing can be registered or used; without `has_guard`, no system region.
    `find_driver` returns the GPU driver.
    """

    def __init__(
        self,
        *,
        allowed: bool,
        max_regions: int = MAX_REGIONS,
        has_guard: bool = IS_SUPPORTED,
        find_driver: Callable[[], CudaDriver | None] = cuda_driver,
    ) -> None:
        self.allowed = allowed
        self._max_regions = max_regions
        self._has_guard = has_guard
        self._find_driver = find_driver
        self._regions: dict[str, Region] = {}
        self.round_number = RoundNumber()
        """Updated when a round of turns begins or ends; each region is checked once per round."""

    def may_have(self, extension: str) -> bool:
        """Return whether `extension` is possible here; all are that are not shared memory's."""
        if extension == "system_shared_memory":
            return self.allowed and self._has_guard
        return self.allowed or extension != "cuda_shared_memory"

    def check_allowed(self) -> None:
        """Raise Unsupported unless clients may register and use shared memory."""
        if not self.allowed:
            raise Unsupported(
                "Client shared memory is disabled. Start the server with "
                "'--allow-client-shm=true' to enable it."
            )

    def open_system(self, name: str, key: str, offset: int, size_bytes: int) -> SystemRegion:
        """Return a POSIX shared memory object, or a part of it, to be added as `name`.

        Raises Unsupported if not allowed or not possible here, InvalidRequest for an invalid name
        or key, or a range that is not inside the object, AlreadyExists, Unavailable if there are
        too many regions, and RegionFailed if there is no name or the object cannot be opened. (V2,
        System Shared Memory extension.)
        """
        self._check_new(name, size_bytes)
        if not self._has_guard:
            raise Unsupported("system shared memory needs a server on 64-bit Linux")
        if offset < 0:
            msg = f"offset of shared memory region '{name}' is {offset}, expected 0 or more"
            raise InvalidRequest(msg)
        return SystemRegion(name, key, offset, size_bytes, self.round_number)

    def open_cuda(self, name: str, handle: bytes, device_id: int, size_bytes: int) -> CudaRegion:
        """Return memory of a GPU, to be added as `name`; `handle` is a cudaIpcMemHandle_t.

        Raises as `open_system` does, and InvalidRequest if there is no GPU. (V2, CUDA Shared
        Memory extension.)
        """
        self._check_new(name, size_bytes)
        status = CudaRegionStatus(name, device_id, size_bytes)
        return CudaRegion(status, handle, self._find_driver())

    def add(self, region: Region) -> None:
        """Register a region that was opened here: requests may use it from now on."""
        self._regions[region.status.name] = region

    async def make(
        self, change: AddSystemRegion | AddCudaRegion | DropRegions, agreement: Agreement
    ) -> None:
        """Register or unregister, when all processes of the `agreement` can.

        Raises as `open_system` and `open_cuda` do.
        """
        if isinstance(change, DropRegions):
            self.unregister(SystemRegion if change.kind == "system" else CudaRegion, change.name)
            return
        region: Region
        if isinstance(change, AddSystemRegion):
            region = self.open_system(change.name, change.shm_key, change.offset, change.size_bytes)
        else:
            region = self.open_cuda(change.name, change.handle, change.device_id, change.size_bytes)
        try:
            # Opened first, added last: either all processes of the server have the region, or none.
            await agreement.all_can(change.name, {})
        except BaseException:
            region.close()
            raise
        self.add(region)

    def unregister(self, kind: type[Region], name: str = "") -> None:
        """Unregister the region `name` of that kind, or all; an unknown one is not an error.

        Requests already using it are not affected. Raises Unsupported if not allowed.
        """
        self.check_allowed()
        for region in self._of_kind(kind):
            if name in ("", region.status.name):
                del self._regions[region.status.name]
                region.close()

    def system_status(self, name: str = "") -> list[SystemRegionStatus]:
        """Return the status of the system region `name`, or of all. Raises RegionNotFound."""
        return [region.status for region in self._found(SystemRegion, "system", name)]

    def cuda_status(self, name: str = "") -> list[CudaRegionStatus]:
        """Return the status of the CUDA region `name`, or of all. Raises RegionNotFound."""
        return [region.status for region in self._found(CudaRegion, "cuda", name)]

    def span(self, name: str, offset: int, size_bytes: int) -> Span:
        """Return a piece of a region for one request; see Resolve."""
        region = self._regions.get(name)
        if region is None:
            self.check_allowed()
            raise RegionNotFound(
                f"Unable to find shared memory region: '{name}' is not registered with this server"
            )
        # The usual case, before any check: it passed them when it was first asked for.
        known = region.spans.get((offset, size_bytes))
        if known is not None:
            return known
        end = offset + size_bytes
        if offset < 0 or size_bytes < 0 or end > region.status.size_bytes:
            sums = "" if offset > region.status.size_bytes else " + byte size"
            raise InvalidRequest(
                f"Invalid offset{sums} for shared memory region: '{name}' has "
                f"{region.status.size_bytes} bytes, bytes {offset} to {end} are not inside"
            )
        return region.span(offset, size_bytes)

    def close(self) -> None:
        """Unregister all regions."""
        regions = list(self._regions.values())
        self._regions.clear()
        for region in regions:
            region.close()

    def _check_new(self, name: str, size_bytes: int) -> None:
        self.check_allowed()
        if not name:  # only gRPC can leave it out; Triton's clients expect INTERNAL there
            raise RegionFailed("a shared memory region needs a name, this one has none")
        if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
            msg = f"the name of a shared memory region may have {MAX_NAME_BYTES} bytes at most"
            raise InvalidRequest(msg)
        if name in self._regions:
            msg = f"shared memory region '{name}' already in manager, unregister it first"
            raise AlreadyExists(msg)
        if size_bytes < 1:
            msg = f"byte_size of shared memory region '{name}' is {size_bytes}, expected 1 or more"
            raise InvalidRequest(msg)
        if len(self._regions) >= self._max_regions:
            msg = f"{self._max_regions} shared memory regions are registered, the most there can be"
            raise Unavailable(msg)

    def _of_kind(self, kind: type[_Kind]) -> list[_Kind]:
        return [region for region in self._regions.values() if isinstance(region, kind)]

    def _found(self, kind: type[_Kind], word: str, name: str) -> list[_Kind]:
        found = [region for region in self._of_kind(kind) if name in ("", region.status.name)]
        if name and not found:
            msg = f"Unable to find {word} shared memory region: '{name}' is not registered"
            raise RegionNotFound(msg)
        return found
