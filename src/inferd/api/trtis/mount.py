"""The TensorRT Inference Server API as a mount."""

from inferd.api.mount import Mount
from inferd.api.trtis.grpc_calls import TRTIS_API_OF, TrtisMethods
from inferd.api.trtis.http_calls import TrtisRoutes
from inferd.api.trtis.trtis import Trtis
from inferd.engine.engine import Engine
from inferd.http.access import Access
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Method
from inferd.http.header_forward import HeaderForward

SERVER_ID = "inference:0"
"""What servers of this API call themselves."""


class TrtisMount(Mount):
    """The API of one engine: HTTP and gRPC share the numbers of requests, and the statistics."""

    groups = TRTIS_API_OF

    def __init__(self, engine: Engine, server_id: str | None) -> None:
        self._trtis = Trtis(engine, server_id or SERVER_ID)

    def http(self, access: Access, failures: FailureLog, *, forwards: bool) -> TrtisRoutes:
        """See Mount.http."""
        return TrtisRoutes(self._trtis, access, failures, forwards=forwards)

    def grpc(self, forward: HeaderForward | None, access: Access) -> dict[str, Method]:
        """See Mount.grpc."""
        return TrtisMethods(self._trtis, forward, access).methods()


MOUNT = TrtisMount
