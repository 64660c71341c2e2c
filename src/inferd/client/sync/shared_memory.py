# Written by tools/build_sync_client.py from ../aio/shared_memory.py: change it there.
"""SharedMemory: a region that is registered with a server for the length of a block."""

from collections.abc import Callable
from typing import Self

from numpy.typing import DTypeLike

from inferd.client.call import ClientCall
from inferd.client.errors import ClientError
from inferd.client.protocol import Protocol
from inferd.client.regions import SharedRegion
from inferd.core.request import Span
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array


class SharedMemory:
    """Made by `shared_memory` of a client; its arrays go to the server without being sent.

        with client.shared_memory(1 << 20) as memory:
            image = memory.array((1, 3, 224, 224), np.float32)
            image[...] = picture
            client.infer("resnet", {"image": image})

    At the end of the block the region is unregistered and removed; arrays stay valid.
    """

    def __init__(
        self,
        size_bytes: int,
        regions: list[SharedRegion],
        protocol: Protocol,
        run: Callable[[ClientCall[None]], None],
    ) -> None:
        self._size_bytes = size_bytes
        self._regions = regions
        self._protocol = protocol
        self._run = run
        self._region: SharedRegion | None = None

    def __enter__(self) -> Self:
        """Make the region and register it. Raises ClientError if the server does not take it."""
        # The region before its registration: a server opens it at once, and refuses one that is not
        # there.
        region = SharedRegion(self._size_bytes)
        try:
            self._run(self._protocol.register(region.registration))
        except BaseException:
            # BaseException: also a cancelled task must not leave an object in /dev/shm, which
            # outlives the process.
            region.close()
            raise
        self._region = region
        self._regions.append(region)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """Unregister and remove the region."""
        region = self._region
        if region is None:
            return
        self._region = None
        # Before it is unregistered: an array must not be sent as a reference that the server has
        # just lost.
        self._regions.remove(region)
        try:
            self._run(self._protocol.unregister(region.registration.name))
        except ClientError:
            if kind is None:  # otherwise what ended the block says more
                raise
        finally:
            region.close()

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return a new array in the region. Raises InvalidRequest if it does not fit."""
        if self._region is None:
            msg = "the shared memory is used outside of its block"
            raise ClientError(msg)
        return self._region.array(shape, dtype)

    def span_of(self, array: Array) -> Span:
        """Return where `array`, made here, lies. Raises InvalidRequest for another."""
        span = self._region.span_of(array) if self._region is not None else None
        if span is None:
            msg = "the array does not lie in this shared memory"
            raise InvalidRequest(msg)
        return span
