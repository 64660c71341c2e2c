"""Which keys open what, over HTTP and with every verb; HTTP/2 and gRPC: see tests/server."""

import pytest

from inferd.api.access import KeyRing
from inferd.config.options.access import ApiKey, hash_key
from inferd.errors import Forbidden, Restricted, Unauthenticated
from inferd.http.access import OPEN, Access, Secret

SECRET = Secret(b"admin-key", b"open sesame")
INFER_ONLY = Access({"inference": SECRET})
METADATA = Access({"metadata": SECRET})
KEY = "Admin-Key: open sesame"

ALICE, BOB = b"inferd_alice", b"inferd_bob"
RING = KeyRing(
    {
        hash_key(ALICE): ApiKey("alice"),
        hash_key(BOB): ApiKey("bob", frozenset(("inference", "health"))),
    }
)
KEYS = Access(keys=RING, keyless=frozenset(("health",)))


def request(path, *lines, method="GET"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


# --- the guard ---


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer inferd_alice"},
        {b"authorization": b"bearer  inferd_alice "},
        {b"x-api-key": b"inferd_alice"},
        {b"authorization": b"Basic dTpw", b"x-api-key": b" inferd_alice"},
    ],
)
def test_a_known_key_passes_wherever_it_stands(headers):
    KEYS.guard("trace").check(headers)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "an API key is needed here"),
        ({b"x-api-key": b""}, "an API key is needed here"),
        ({b"authorization": b"Bearer"}, "an API key is needed here"),
        ({b"authorization": b"inferd_alice"}, "an API key is needed here"),
        ({b"x-api-key": b"Inferd_alice"}, "the API key is not known here"),
        ({b"x-api-key": b"inferd_alice, inferd_alice"}, "the API key is not known here"),
        ({b"authorization": b"Bearer x", b"x-api-key": b"inferd_alice"}, "is not known"),
        ({b"x-api-key": hash_key(ALICE)}, "is not known"),
        ({b"x-api-key": hash_key(ALICE).hex().encode()}, "is not known"),
        ({b"x-api-key": b"\xff\x00"}, "is not known"),
    ],
)
def test_without_a_known_key_nobody_passes(headers, text):
    with pytest.raises(Unauthenticated, match=text) as caught:
        KEYS.guard("trace").check(headers)
    assert "alice" not in caught.value.message


def test_a_key_opens_only_its_groups():
    bob = {b"x-api-key": BOB}
    KEYS.guard("inference").check(bob)
    with pytest.raises(Forbidden, match="not good for the model-repository calls"):
        KEYS.guard("model-repository").check(bob)


def test_groups_without_keys_have_no_guard():
    assert KEYS.guard("health") is None
    assert Access(keys=RING).guard("health")


def test_keys_that_are_exchanged_count_at_once():
    ring = KeyRing({})
    guard = Access(keys=ring).guard("trace")
    with pytest.raises(Unauthenticated):
        guard.check({b"x-api-key": ALICE})
    ring.keys = RING.keys
    guard.check({b"x-api-key": ALICE})


def test_a_key_does_not_open_what_is_restricted_and_the_other_way_round():
    guard = Access({"trace": SECRET}, RING).guard("trace")
    with pytest.raises(Restricted):
        guard.check({b"x-api-key": ALICE})
    with pytest.raises(Unauthenticated):
        guard.check(dict([SECRET]))
    guard.check({b"x-api-key": ALICE, **dict([SECRET])})


def test_headers_that_open_something_are_secret():
    assert OPEN.secret_names == frozenset()
    assert METADATA.secret_names == {"admin-key"}
    both = Access({"trace": SECRET}, RING)
    assert both.secret_names == {"admin-key", "authorization", "x-api-key"}


# --- over HTTP ---


async def test_restricted_calls_are_403_without_the_header(serving):
    async with serving(access=METADATA) as site:
        for path in ("/v2", "/v2/models", "/v2/models/id", "/v2/models/id/versions/3"):
            for lines in ((), ("Admin-Key: wrong",), (KEY, KEY)):
                answer = await site.ask(request(path, *lines))
                assert answer.status == 403
                assert "admin-key" in answer.error and "sesame" not in answer.error
            assert (await site.ask(request(path, KEY))).status == 200


async def test_a_refusal_leaves_the_connection_open(serving):
    async with serving(access=METADATA) as site:
        client = await site.connect()
        assert (await client.ask(request("/v2"))).status == 403
        assert (await client.ask(request("/v2", KEY))).status == 200


async def test_other_calls_stay_open(serving, infer):
    async with serving(access=METADATA) as site:
        assert (await site.ask(infer([1.5]))).status == 200
        assert (await site.ask(request("/v2/health/ready"))).status == 200
        assert (await site.ask(request("/v2/nothing"))).status == 404


async def test_a_restricted_path_does_not_tell_its_verbs(serving):
    async with serving(access=METADATA) as site:
        assert (await site.ask(request("/v2", method="DELETE"))).status == 403
        answer = await site.ask(request("/v2", KEY, method="DELETE"))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_a_model_that_is_not_there_looks_like_one_that_is(serving):
    async with serving(access=METADATA) as site:
        there = await site.ask(request("/v2/models/id"))
        assert await site.ask(request("/v2/models/nope")) == there


async def test_an_inference_with_the_header_runs(serving, infer, binary):
    async with serving(access=INFER_ONLY) as site:
        assert (await site.ask(infer([1.5]))).status == 403
        assert (await site.ask(infer([1.5], KEY))).json["outputs"][0]["data"] == [1.5]
        data = bytes(100_000)
        assert (await site.ask(binary(data, KEY))).body.endswith(data)


@pytest.mark.parametrize("how", [{"length": 2**31}, {"as_chunks": 2**14}])
async def test_a_large_body_is_not_taken_from_who_may_not_call(serving, post, how):
    async with serving(access=INFER_ONLY) as site:
        client = await site.connect()
        sent = post("/v2/models/id/infer", bytes(2**15), "Expect: 100-continue", **how)
        answer = await client.ask(sent)
        assert answer.status == 403
        assert answer.headers["connection"] == "close"
        assert site.server.endpoint.capacity.buffered_bytes == 0


async def test_without_a_key_calls_are_401_and_say_what_is_needed(serving, infer):
    async with serving(access=KEYS) as site:
        for sent in (request("/v2"), infer([1.5]), request("/v2", "X-API-Key: nope")):
            answer = await site.ask(sent)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "nope" not in answer.error
        answer = await site.ask(infer([1.5], "Authorization: Bearer inferd_bob"))
        assert answer.json["outputs"][0]["data"] == [1.5]
        assert (await site.ask(request("/v2", "X-API-Key: inferd_bob"))).status == 403
        assert (await site.ask(request("/v2", "X-API-Key: inferd_alice"))).status == 200


async def test_health_needs_no_key(serving):
    async with serving(access=KEYS) as site:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/id/ready"):
            assert (await site.ask(request(path))).status == 200


async def test_a_large_body_without_a_key_is_401_before_it_comes(serving, post):
    async with serving(access=KEYS) as site:
        client = await site.connect()
        answer = await client.ask(post("/v2/models/id/infer", bytes(2**15), length=2**31))
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_no_model_is_given_a_key(serving):
    fields = [
        ("X-API-Key", "k"),
        ("Authorization", "Bearer k"),
        ("Admin-Key", "k"),
        ("X-User", "a"),
    ]
    access = Access({"inference": SECRET}, RING)
    async with serving(access=access, header_forward_pattern=".") as site:
        assert site.server.endpoint.routes.forward.chosen(fields) == {"X-User": "a"}
    async with serving(header_forward_pattern=".") as site:
        assert site.server.endpoint.routes.forward.chosen(fields) == dict(fields)
