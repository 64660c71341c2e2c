import pytest

from inferd.api.header_forward import add_forwarded, header_forward
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.tensor import Tensor

FIELDS = [("Host", "there"), ("X-User", "ann"), ("x-group", "b"), ("Proxy-X-Id", "7")]


def chosen(pattern, fields=FIELDS):
    return header_forward(pattern, "--here").chosen(fields)


# --- which headers ---


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^x-", ["X-User", "x-group"]),
        ("x-", ["X-User", "x-group", "Proxy-X-Id"]),
        ("(?-i)x-", ["x-group"]),
        ("(?-i)X-", ["X-User", "Proxy-X-Id"]),
        ("user$|^HOST$", ["Host", "X-User"]),
        ("nothing", []),
        ("ann", []),
    ],
)
def test_a_pattern_is_found_anywhere_in_the_name(pattern, names):
    assert list(chosen(pattern)) == names


def test_what_asks_for_statuses_of_grpc_is_no_parameter():
    assert chosen(".", [("triton_grpc_error", "true"), ("x", "a")]) == {"x": "a"}


def test_a_secret_is_never_forwarded():
    forward = header_forward(".", "--here", frozenset(("x-user", "host")))
    assert list(forward.chosen(FIELDS)) == ["x-group", "Proxy-X-Id"]


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{3,2}", "(?P<n>", "a" * 10 + "(?-i)", "(" * 10000]
)
def test_a_pattern_that_is_none_is_refused_by_its_option(pattern):
    with pytest.raises(InvalidConfig, match=r"^--here: '"):
        header_forward(pattern, "--here")


@pytest.mark.parametrize("pattern", [None, ""])
def test_without_a_pattern_there_is_nothing_to_ask(pattern):
    assert header_forward(pattern, "--here") is None


# --- into the request ---


def test_headers_come_over_parameters_of_the_same_name():
    parameters = {"X-User": "body", "x-user": "body", "n": 1}
    request = InferRequest("m", parameters=parameters)
    add_forwarded(request, {"X-User": "head"})
    assert request.parameters == {"X-User": "head", "x-user": "body", "n": 1}
    assert parameters["X-User"] == "body"


@pytest.mark.parametrize("name", ["priority", "timeout", "headers", "sequence_id", "triton_x"])
def test_reserved_names_are_refused(name):
    request = InferRequest("m")
    with pytest.raises(InvalidRequest, match=f"^header '{name}' cannot become a parameter"):
        add_forwarded(request, {"x": "y", name: "1"})
    assert request.parameters == {}


# --- over HTTP/1.1 ---


class Telling:
    """A scheduler whose model answers with the parameters it was asked with."""

    async def run(self, request):
        outputs = [Tensor("T", t.datatype, t.shape, t.data) for t in request.inputs]
        return InferResponse("", "", outputs=outputs, parameters=request.parameters)


async def told(site, *requests):
    client = await site.connect()
    return [(await client.ask(request)).json.get("parameters") for request in requests]


async def test_headers_reach_the_model_in_the_case_they_were_sent(serving, infer, add_model):
    async with serving(header_forward_pattern="^x-|^priority$") as site:
        add_model(site.engine, "telling", Telling())

        def ask(*lines):
            return infer([1.5], *lines, model="telling")

        first, second = ask("X-User: Ann"), ask("x-user: Bob")
        # The server remembers heads: each request must have its own all the same.
        found = await told(site, first, first, second, first, ask(), ask("Y-User: Cid"))
        ann, bob = {"X-User": "Ann"}, {"x-user": "Bob"}
        assert found == [ann, ann, bob, ann, None, None]


async def test_a_reserved_header_fails_the_inference_and_no_other_call(serving, infer, add_model):
    async with serving(header_forward_pattern=".") as site:
        add_model(site.engine, "telling", Telling())
        answer = await site.ask(infer([1.5], "priority: u=1", model="telling"))
        assert answer.status == 400
        assert answer.error.startswith("header 'priority' cannot become a parameter")
        health = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\npriority: u=1\r\n\r\n"
        assert (await site.ask(health)).status == 200


async def test_without_the_option_no_header_reaches_a_model(serving, infer, add_model):
    async with serving() as site:
        add_model(site.engine, "telling", Telling())
        assert await told(site, infer([1.5], "X-User: Ann", model="telling")) == [None]
