"""EndpointSlices, from an API server that answers over TLS as Kubernetes does."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from inferd.errors import InvalidConfig
from inferd.route.http_client import HttpTarget
from inferd.route.place import Place, PlaceState, SourceFailed
from inferd.route.sources.kubernetes import (
    ApiServer,
    KubernetesSource,
    api_server,
    own_namespace,
    places_in,
)

READY = {"ready": True, "serving": True, "terminating": False}
ENDING = {"ready": False, "serving": True, "terminating": True}
ENDED = {"ready": False, "serving": False, "terminating": True}
STARTING = {"ready": False, "serving": False, "terminating": False}
PORTS = [{"name": "http", "port": 8000}, {"name": "grpc", "port": 8001}]


def endpoint(name, address, conditions=READY):
    return {
        "addresses": [address],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "name": name},
    }


def slice_of(*endpoints, name="s1", version="1", ports=PORTS, family="IPv4"):
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "addressType": family,
        "ports": ports,
        "endpoints": list(endpoints),
    }


def names(places):
    return [place.name for place in places]


# --- what slices say ---


def test_pods_that_are_ready_are_places():
    places = places_in([slice_of(endpoint("b", "10.0.0.2"), endpoint("a", "10.0.0.1"))])
    assert places == (Place("a", "10.0.0.1", 8000, 8001), Place("b", "10.0.0.2", 8000, 8001))


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        (READY, PlaceState.READY),
        ({}, PlaceState.READY),
        (None, PlaceState.READY),
        (ENDING, PlaceState.DRAINING),
        ({"ready": True, "terminating": True}, PlaceState.DRAINING),
        (ENDED, None),
        (STARTING, None),
    ],
)
def test_conditions_decide_what_a_pod_is_given(conditions, state):
    places = places_in([slice_of(endpoint("a", "10.0.0.1", conditions))])
    assert [place.state for place in places] == ([] if state is None else [state])


def test_a_pod_in_several_slices_is_one_place():
    places = places_in(
        [
            slice_of(endpoint("a", "fd00::1"), name="six", family="IPv6"),
            slice_of(endpoint("a", "10.0.0.1", ENDING), name="four"),
            slice_of(endpoint("a", "10.0.0.1"), name="next"),
            slice_of(endpoint("x", "a.example"), name="fqdn", family="FQDN"),
        ]
    )
    assert places == (Place("a", "10.0.0.1", 8000, 8001),)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([{"name": "grpc", "port": 1}, {"name": "http", "port": 2}], (2, 1)),
        ([{"name": "http1", "port": 2}, {"name": "h2c", "port": 1}], (2, 1)),
        ([{"name": "http-metrics", "port": 3}, {"name": "http", "port": 2}], (2, 2)),
        ([{"name": "h2c", "port": 1}], (1, 1)),
        ([{"port": 1}], (1, 1)),
    ],
)
def test_ports_are_known_by_their_names(ports, expected):
    [place] = places_in([slice_of(endpoint("a", "10.0.0.1"), ports=ports)])
    assert (place.http_port, place.grpc_port) == expected


def test_ports_with_other_names_are_a_failure():
    ports = [{"name": "web", "port": 1}, {"name": "api", "port": 2}]
    with pytest.raises(SourceFailed, match="s1: no port is called http or grpc, there are: api, w"):
        places_in([slice_of(endpoint("a", "10.0.0.1"), ports=ports)])


def test_an_endpoint_without_a_pod_has_its_address_as_its_name():
    found = slice_of({"addresses": ["10.0.0.9"]})
    assert names(places_in([found])) == ["10.0.0.9"]


# --- the API ---


class Api:
    """An API server with one list; each watch gets the next of `watches`, a list of events.

    A watch ends after its events, unless the last of them is "hang". `requests` are the queries,
    with the tokens they had.
    """

    def __init__(self, lists, watches):
        self.lists = lists
        self.watches = watches
        self.requests = []

    async def serve(self, reader, writer):
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(one.split(": ", 1) for one in lines if one)
        query = {key: one for key, [one] in parse_qs(urlsplit(line.split()[1]).query).items()}
        self.requests.append((headers["Authorization"], query))
        if "watch" in query:
            await self.watch(writer)
        else:
            status, document = self.lists.pop(0)
            body = json.dumps(document).encode()
            writer.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
            writer.write(body)
        writer.close()

    async def watch(self, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in self.watches.pop(0) if self.watches else ["hang"]:
            if event == "hang":
                await writer.drain()
                await asyncio.Event().wait()
            text = json.dumps(event).encode() + b"\n"
            for piece in (text[:7], text[7:]):  # events do not come in one piece each
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
        writer.write(b"0\r\n\r\n")


def listed(*slices, version="10"):
    return 200, {"metadata": {"resourceVersion": version}, "items": list(slices)}


def event(kind, found):
    return {"type": kind, "object": found}


BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
TOO_OLD = event("ERROR", {"code": 410, "message": "too old"})


@pytest.fixture
def follow(certificates, tmp_path):
    """Run a test with a source that follows an Api."""
    token = tmp_path / "token"
    token.write_text("first\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    @asynccontextmanager
    async def serving(api):
        server = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=context)
        tls = ssl.create_default_context(cafile=certificates / "ca.pem")
        target = HttpTarget("127.0.0.1", server.sockets[0].getsockname()[1], tls)
        source = KubernetesSource(ApiServer(target, token), "models", "iris", again_s=0)
        places = source.follow()
        try:
            yield places
        finally:
            await places.aclose()
            server.close()

    serving.token = token
    return serving


def test_what_the_watch_tells_is_followed(follow):
    api = Api(
        [listed(slice_of(endpoint("a", "10.0.0.1")))],
        [
            [
                event("MODIFIED", slice_of(endpoint("a", "10.0.0.1", ENDING), version="11")),
                event("ADDED", slice_of(endpoint("b", "10.0.0.2"), name="s2", version="12")),
                event("DELETED", slice_of(name="s1", version="13")),
                "hang",
            ]
        ],
    )

    async def test():
        async with follow(api) as places:
            return [await anext(places) for _ in range(4)]

    first, ending, both, last = asyncio.run(test())
    assert names(first) == ["a"]
    assert [place.state for place in ending] == [PlaceState.DRAINING]
    assert names(both) == ["a", "b"]
    assert names(last) == ["b"]
    assert api.requests[0] == (
        "Bearer first",
        {"labelSelector": "kubernetes.io/service-name=iris"},
    )
    assert api.requests[1][1]["resourceVersion"] == "10"
    assert api.requests[1][1]["allowWatchBookmarks"] == "true"


def test_a_watch_that_ends_goes_on_where_it_was_with_the_token_of_now(follow):
    later = event("MODIFIED", slice_of(endpoint("b", "10.0.0.2"), version="21"))
    api = Api([listed(slice_of(endpoint("a", "10.0.0.1")))], [[BOOKMARK], [later, "hang"]])

    async def test():
        async with follow(api) as places:
            await anext(places)
            follow.token.write_text("second")
            return await anext(places)

    assert names(asyncio.run(test())) == ["b"]
    assert [query.get("resourceVersion") for _, query in api.requests] == [None, "10", "20"]
    assert api.requests[-1][0] == "Bearer second"


def test_a_version_that_is_too_old_has_everything_read_anew(follow):
    api = Api(
        [
            listed(slice_of(endpoint("a", "10.0.0.1"))),
            listed(slice_of(endpoint("b", "10.0.0.2")), version="30"),
        ],
        [[TOO_OLD], ["hang"]],
    )

    async def test():
        async with follow(api) as places:
            return [await anext(places) for _ in range(2)]

    assert list(map(names, asyncio.run(test()))) == [["a"], ["b"]]


def test_a_change_that_changes_no_place_is_no_news(follow):
    same = event("MODIFIED", slice_of(endpoint("a", "10.0.0.1"), version="11"))
    other = event("MODIFIED", slice_of(endpoint("b", "10.0.0.1"), version="12"))
    api = Api([listed(slice_of(endpoint("a", "10.0.0.1")))], [[same, other, "hang"]])

    async def test():
        async with follow(api) as places:
            return [await anext(places) for _ in range(2)]

    assert list(map(names, asyncio.run(test()))) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((403, {"message": "cannot list"}), r"the API refuses \(403\): cannot list"),
        ((500, []), r"the API refuses \(500\)"),
        ((200, {"items": []}), "metadata"),
        ((200, []), "list indices"),
    ],
)
def test_a_refusal_is_a_failure_with_the_apis_words(follow, answer, message):
    async def test():
        async with follow(Api([answer], [])) as places:
            await anext(places)

    with pytest.raises(SourceFailed, match=message):
        asyncio.run(test())


def test_an_error_while_watching_is_a_failure(follow):
    forbidden = event("ERROR", {"code": 403, "message": "no more"})
    api = Api([listed()], [[forbidden]])

    async def test():
        async with follow(api) as places:
            assert await anext(places) == ()
            await anext(places)

    with pytest.raises(SourceFailed, match=r"refuses \(403\): no more"):
        asyncio.run(test())


def test_an_api_that_is_not_there_is_a_failure(tmp_path):
    (tmp_path / "token").write_text("t")
    api = ApiServer(HttpTarget("127.0.0.1", 1), tmp_path / "token")

    async def test():
        await anext(KubernetesSource(api, "models", "iris").follow())

    with pytest.raises(SourceFailed, match="the service models/iris: "):
        asyncio.run(test())


# --- the pod ---


def test_a_pod_knows_its_api(certificates, tmp_path):
    (tmp_path / "ca.crt").write_bytes((certificates / "ca.pem").read_bytes())
    (tmp_path / "namespace").write_text("models\n")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    api = api_server(environ, tmp_path)
    assert (api.target.host, api.target.port) == ("10.0.0.1", 443)
    assert api.token_file == tmp_path / "token"
    assert own_namespace(tmp_path) == "models"


def test_outside_of_a_pod_it_is_said_what_lacks(tmp_path):
    with pytest.raises(InvalidConfig, match="KUBERNETES_SERVICE_HOST"):
        api_server({}, tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(InvalidConfig, match=r"the certificate of the API at .*ca\.crt"):
        api_server(environ, tmp_path)
    with pytest.raises(InvalidConfig, match="name the namespace too"):
        own_namespace(tmp_path)
