"""Common to the ports for cloud platforms: V2's calls under other URLs and Content-Types."""

import re
from copy import copy
from urllib.parse import quote

from inferd.api.routes import HttpRoutes
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.wire.v2.binary import HEADER_KEY
from inferd.wire.v2.content_type import BinaryType

NOT_READY = 503
"""The status of failed health checks; both platforms look only at the status."""

# V2 tells the size of the JSON in a header of its own, which the platforms do not pass on.
_SIZE = re.compile(rb"^%b: ([0-9]+)\r$" % HEADER_KEY, re.IGNORECASE | re.MULTILINE)


class CloudCalls:
    """Calls V2 on behalf of a platform.

    `default` is the model for requests that name none, "" for the only one there is; `flag` is the
    option that sets it. Binary tensor data are sent and received as `binary_type`.
    """

    def __init__(
        self, engine: Engine, v2: HttpRoutes, binary_type: BinaryType, default: str, flag: str
    ) -> None:
        self._engine = engine
        self._v2 = v2
        self._binary_type = binary_type
        self._default = default
        self._flag = flag

    def health(self, *, ready: bool) -> HttpAnswer:
        """Return the answer to a health check: a status and an empty body."""
        return HttpAnswer(200 if ready else NOT_READY, [])

    async def infer(self, request: HttpRequest, model: str = "", verb: str = "infer") -> HttpAnswer:
        """Return V2's answer to `verb` of `model`, "" for the default model."""
        # The request may be shared by all that are alike; only this call's target changes.
        passed_on = copy(request)
        # A model's name may hold characters that a path gives a meaning to.
        name = quote(model or self.default_model(), safe="")
        passed_on.target = f"/v2/models/{name}/{verb}".encode()
        return await self.of_v2(passed_on)

    async def of_v2(self, request: HttpRequest) -> HttpAnswer:
        """Return V2's answer to `request`, whose target is one of V2's."""
        headers = request.headers
        size = self._binary_type.json_size(headers.get(b"content-type", b""))
        if size is not None:
            request = copy(request)
            request.headers = {**headers, HEADER_KEY: size}
        answer = await self._v2.answer(request)
        if found := _SIZE.search(answer.headers):
            answer.content_type = self._binary_type.with_size(found[1])
        return answer

    def default_model(self) -> str:
        """Return the model for requests that name none. Raises InvalidRequest if it is unclear."""
        if self._default:
            return self._default
        # All known models, ready or not: with one that still loads, it is clear which is meant.
        names = {row.name for row in self._engine.catalog.index()}
        if len(names) == 1:
            return names.pop()
        msg = (
            f"the request names no model, and there are {len(names)}: {self._flag} says which one "
            f"is meant"
        )
        raise InvalidRequest(msg)
