"""The URLs where the server describes itself: the OpenAPI document and gRPC's .proto files."""

import msgspec

from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.wire import documents
from inferd.wire.v2.rest import codec as v2_rest

_TEXT = b"text/plain; charset=utf-8"


class DocumentRoutes:
    """Serves the documents that client generators need."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v2/openapi.json", "metadata", self.openapi),
            Route("GET", "/v2/protos", "metadata", self.protos),
            Route("GET", "/v2/protos/{file}", "metadata", self.proto),
        ]

    async def openapi(self, _request: HttpRequest) -> HttpAnswer:
        """Return the OpenAPI document."""
        return HttpAnswer(200, [documents.openapi()])

    async def protos(self, _request: HttpRequest) -> HttpAnswer:
        """Return the names of the .proto files."""
        return HttpAnswer(200, [msgspec.json.encode({"files": list(documents.proto_files())})])

    async def proto(self, _request: HttpRequest, file: str) -> HttpAnswer:
        """Return one .proto file."""
        known = documents.proto_files()
        if file in known:
            return HttpAnswer(200, [known[file]], content_type=_TEXT)
        text = f"there is no file '{file[:200]}' here, expected one of {', '.join(known)}"
        return HttpAnswer(404, [v2_rest.encode_error(text)])
