"""The URLs of the shared memory extensions."""

from typing import NoReturn

from inferd.errors import InvalidRequest
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.shm.cuda import CudaRegion
from inferd.shm.regions import Regions
from inferd.shm.system import SystemRegion
from inferd.wire.v2.rest import shared_memory as wire

_API = "shared-memory"


class SharedMemoryRoutes:
    """Registers, unregisters and lists regions."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v2/systemsharedmemory/status", _API, self.system_status),
            Route("GET", "/v2/systemsharedmemory/region/{region}/status", _API, self.system_status),
            Route("POST", "/v2/systemsharedmemory/region/{region}/register", _API, self.add_system),
            Route("POST", "/v2/systemsharedmemory/register", _API, self.refuse_nameless_system),
            Route(
                "POST", "/v2/systemsharedmemory/region/{region}/unregister", _API, self.drop_system
            ),
            Route("POST", "/v2/systemsharedmemory/unregister", _API, self.drop_system),
            Route("GET", "/v2/cudasharedmemory/status", _API, self.cuda_status),
            Route("GET", "/v2/cudasharedmemory/region/{region}/status", _API, self.cuda_status),
            Route("POST", "/v2/cudasharedmemory/region/{region}/register", _API, self.add_cuda),
            Route("POST", "/v2/cudasharedmemory/register", _API, self.refuse_nameless_cuda),
            Route("POST", "/v2/cudasharedmemory/region/{region}/unregister", _API, self.drop_cuda),
            Route("POST", "/v2/cudasharedmemory/unregister", _API, self.drop_cuda),
        ]

    async def system_status(self, _request: HttpRequest, region: str = "") -> HttpAnswer:
        """Return the status of one region, or of all."""
        return HttpAnswer(200, [wire.encode_system_status(self._regions.system_status(region))])

    async def add_system(self, request: HttpRequest, region: str) -> HttpAnswer:
        """Register a region."""
        self._regions.check_allowed()  # first: the body matters only where it could be registered
        wanted = wire.decode_system_registration(request.body)
        self._regions.register_system(region, wanted.key, wanted.offset, wanted.size_bytes)
        return _done()

    async def drop_system(self, _request: HttpRequest, region: str = "") -> HttpAnswer:
        """Unregister one region, or all; an unknown one is not an error."""
        self._regions.unregister(SystemRegion, region)
        return _done()

    async def cuda_status(self, _request: HttpRequest, region: str = "") -> HttpAnswer:
        """Return the status of one region, or of all."""
        return HttpAnswer(200, [wire.encode_cuda_status(self._regions.cuda_status(region))])

    async def add_cuda(self, request: HttpRequest, region: str) -> HttpAnswer:
        """Register a region."""
        self._regions.check_allowed()
        wanted = wire.decode_cuda_registration(request.body)
        self._regions.register_cuda(region, *wanted)
        return _done()

    async def drop_cuda(self, _request: HttpRequest, region: str = "") -> HttpAnswer:
        """Unregister one region, or all; an unknown one is not an error."""
        self._regions.unregister(CudaRegion, region)
        return _done()

    async def refuse_nameless_system(self, _request: HttpRequest) -> HttpAnswer:
        """Refuse a registration whose URL has no name."""
        self._refuse_nameless("system")

    async def refuse_nameless_cuda(self, _request: HttpRequest) -> HttpAnswer:
        """Refuse a registration whose URL has no name."""
        self._refuse_nameless("cuda")

    def _refuse_nameless(self, word: str) -> NoReturn:
        self._regions.check_allowed()
        msg = (
            f"'region name' is necessary to register {word} shared memory region: "
            f"it belongs into the URL, .../region/NAME/register"
        )
        raise InvalidRequest(msg)


def _done() -> HttpAnswer:
    return HttpAnswer(200, [])
