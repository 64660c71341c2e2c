"""What the server hands out about itself over HTTP."""

import pytest

from inferd.http.access import Access, Secret
from inferd.wire.documents import openapi, proto_files


def request(path):
    return f"GET {path} HTTP/1.1\r\n\r\n".encode()


async def test_the_openapi_document_is_handed_out(serving):
    async with serving() as site:
        answer = await site.ask(request("/v2/openapi.json"))
        assert (answer.status, answer.body) == (200, openapi())
        assert answer.json["openapi"].startswith("3.1.")


async def test_each_proto_file_is_handed_out_as_text(serving):
    async with serving() as site:
        listed = (await site.ask(request("/v2/protos"))).json
        assert listed == {"files": list(proto_files())}
        for name, text in proto_files().items():
            answer = await site.ask(request(f"/v2/protos/{name}"))
            assert (answer.status, answer.body) == (200, text)
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "name", ["nothing.proto", "health.binpb", "__init__.py", "..%2Fv2_rest.py", "%00", "x" * 2000]
)
async def test_other_files_are_not(serving, name):
    async with serving() as site:
        answer = await site.ask(request(f"/v2/protos/{name}"))
        assert answer.status == 404
        assert "expected one of grpc_service.proto" in answer.error


async def test_they_are_metadata(serving):
    async with serving(access=Access({"metadata": Secret(b"k", b"v")})) as site:
        for path in ("/v2/openapi.json", "/v2/protos", "/v2/protos/health.proto"):
            assert (await site.ask(request(path))).status == 403
