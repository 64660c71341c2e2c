"""Routes: what a connection gets its answers from."""

from collections.abc import Coroutine

from inferd.compiled import mypyc_attr
from inferd.errors import DocumentNotFound, InferdError, TooLarge
from inferd.http.access import Headers
from inferd.http.head_template import Variations
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpAnswer, HttpError, HttpRequest
from inferd.http.router import Router, path_of


@mypyc_attr(allow_interpreted_subclasses=True)
class Routes:
    """Answers the requests of connections; `router` knows the targets there are.

    With `is_guarded` some calls are restricted: call `check_access` before receiving a large body.
    `forward` chooses the headers that are forwarded to the calls; the code that makes an
    HttpRequest applies it. An overloaded server may refuse the calls of the API group `refusable`.
    `variations` says in what the heads of one client differ.
    """

    def __init__(
        self,
        router: Router,
        *,
        forward: HeaderForward | None,
        refusable: str,
        variations: Variations,
    ) -> None:
        self.router = router
        self.is_guarded = router.is_guarded
        self.forward = forward
        self.refusable = refusable
        self.variations = variations

    def begin(self, request: HttpRequest) -> HttpAnswer | Coroutine[object, None, HttpAnswer]:
        """Return the answer if it need not wait for anything, else a coroutine that returns it."""
        return self.answer(request)

    def answer(self, request: HttpRequest) -> Coroutine[object, None, HttpAnswer]:
        """Return the answer to `request`, whatever happens."""
        raise NotImplementedError

    def refusal(self, request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """Return the answer to a request that its connection refuses, worded as in its API.

        If the head of the request is malformed, at most its target is known.
        """
        raise NotImplementedError

    def check_access(self, target: bytes, headers: Headers) -> None:
        """Raise the error `answer` would answer with if the sender has no access to `target`."""
        found = self.router.find(target)
        if found is not None and found.guard is not None:
            found.guard.check(headers)

    def is_refusable(self, target: bytes) -> bool:
        """Return whether an overloaded server may refuse requests to `target` by their heads."""
        found = self.router.find(target)
        return found is not None and found.api == self.refusable

    def check_length(self, target: bytes, length: int) -> None:
        """Raise TooLarge if `target` takes no body of `length` bytes; -1: nobody knows how many.

        Raises DocumentNotFound for a target that does not exist, which takes none.
        """
        found = self.router.find(target)
        if found is None:
            msg = f"Not Found: there is nothing at '{path_of(target)[:200].decode('latin-1')}'"
            raise DocumentNotFound(msg)
        if found.most_bytes and not 0 <= length <= found.most_bytes:
            msg = f"the body must say its length, which may be {found.most_bytes} bytes here"
            raise TooLarge(msg)

    def is_timed(self) -> bool:
        """Return whether `began_ns` of requests is of use."""
        return False
