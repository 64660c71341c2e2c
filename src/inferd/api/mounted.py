"""MountedRoutes: what HttpRoutes knows of an API beside V2 (Mount)."""

from inferd.compiled import mypyc_attr
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route, Target


@mypyc_attr(allow_interpreted_subclasses=True)
class MountedRoutes:
    """The URLs of a mount on one port, and how it words what its calls do not answer.

    `own_headers` names the response headers that a web page may want to read. Clients put the ids
    of their requests in the header `id_header`, in lower case; it is b"" if there is none.
    """

    def __init__(self, own_headers: list[str], id_header: bytes) -> None:
        self.own_headers = own_headers
        self.id_header = id_header

    def owns(self, target: bytes) -> bool:
        """Return whether a request target belongs to this API, even if it does not exist there."""
        raise NotImplementedError

    def routes(self) -> list[Route]:
        """Return the routes."""
        raise NotImplementedError

    def not_found(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a target that does not exist."""
        raise NotImplementedError

    def wrong_method(self, request: HttpRequest, target: Target) -> HttpAnswer:
        """Return the answer to a method that `target` does not allow."""
        raise NotImplementedError

    def refusal(self, error: Exception) -> HttpAnswer:
        """Return the answer to a request that never reached its call, or made it fail."""
        raise NotImplementedError

    def is_shared(self) -> bool:
        """Return whether web pages of other origins may call it, if the server allows any."""
        return True

    def success(self) -> bytes:
        """Return the headers of a successful answer that comes from no call of this API."""
        raise NotImplementedError
