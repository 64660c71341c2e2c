"""What the ports of cloud platforms share: calls of V2 under other URLs and Content-Types."""

import re
from copy import copy
from urllib.parse import quote

from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.transport.http_message import HttpAnswer, HttpRequest
from inferd.transport.http_routes import HttpRoutes
from inferd.wire import v2_binary
from inferd.wire.v2_content_type import BinaryType

NOT_READY = 503
"""The status of health checks that fail; both platforms look at the status alone."""

_HEADER = v2_binary.HEADER.lower().encode()
_SIZE = re.compile(rb"^%b: ([0-9]+)\r$" % _HEADER, re.IGNORECASE | re.MULTILINE)


class CloudCalls:
    """Asks V2's calls on behalf of a platform.

    `default` is the model meant by requests that name none, "" for the only one there is; `flag`
    sets it. Binary tensor data come and go as `binary_type`.
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
        """Return the answer to a health check: an empty body, its status says all."""
        return HttpAnswer(200 if ready else NOT_READY, [])

    async def infer(self, request: HttpRequest, model: str = "", verb: str = "infer") -> HttpAnswer:
        """Return what V2 answers to `verb` of `model`; none named means the default one."""
        asked = copy(request)
        asked.target = f"/v2/models/{quote(model or self.default_model(), safe='')}/{verb}".encode()
        return await self.of_v2(asked)

    async def of_v2(self, request: HttpRequest) -> HttpAnswer:
        """Return what V2 answers to `request`, whose target is one of V2."""
        headers = request.headers
        size = self._binary_type.json_size(headers.get(b"content-type", b""))
        if size is not None:
            request = copy(request)
            request.headers = {**headers, _HEADER: size}
        answer = await self._v2.answer(request)
        if found := _SIZE.search(answer.headers):
            answer.content_type = self._binary_type.with_size(found[1])
        return answer

    def default_model(self) -> str:
        """Return the model meant by requests that name none. Raises InvalidRequest."""
        if self._default:
            return self._default
        names = {row.name for row in self._engine.index()}
        if len(names) == 1:
            return names.pop()
        msg = (
            f"the request names no model, and there are {len(names)}: {self._flag} says which one "
            f"is meant"
        )
        raise InvalidRequest(msg)
