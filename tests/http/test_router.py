"""Which URL means which call."""

import pytest

from inferd.http.router import MOST_REMEMBERED, Route, Router


async def call(request, *names):
    raise NotImplementedError


ROUTER = Router(
    [
        Route("GET", "/v2/models/{model}", "metadata", call),
        Route("GET", "/v2/models/{model}/versions/{version}", "metadata", call),
        Route("POST", "/v2/models/{model}/infer", "inference", call),
        Route("GET", "/v2/trace/setting", "trace", call),
        Route("POST", "/v2/trace/setting", "trace", call),
    ]
)


def test_a_target_is_looked_up_once_and_kept():
    assert ROUTER.find(b"/v2/models/id/infer") is ROUTER.find(b"/v2/models/id/infer")


def test_names_that_are_not_utf8_are_replaced():
    found = ROUTER.find(b"/v2/models/%FF%FE/versions/\xc3\xa9")
    assert found.names == ("\ufffd\ufffd", "é")


@pytest.mark.parametrize(
    "target",
    [
        b"/v2/models/a%2Fb/infer",
        b"/v2/models/a%2Fb/infer/",
        b"/v2/models/a%2Fb/infer?x=/y",
        b"http://there/v2/models/a%2Fb/infer",
        b"HTTP://there/v2/models/a%2Fb/infer",
        b"Https://there:443/v2/models/a%2Fb/infer",
    ],
)
def test_an_escaped_slash_stays_in_its_name(target):
    found = ROUTER.find(target)
    assert found.names == ("a/b",)
    assert list(found.calls) == [b"POST"]


def test_get_is_head_too_and_verbs_of_one_path_stay_together():
    assert set(ROUTER.find(b"/v2/trace/setting").calls) == {b"GET", b"HEAD", b"POST"}


@pytest.mark.parametrize(
    "target", [b"*", b"there:80", b"/v2/models//infer", b"/v2/models/a/infer//", b"/", b""]
)
def test_what_is_no_route_is_nothing(target):
    assert ROUTER.find(target) is None


def test_what_is_remembered_is_bounded():
    router = Router([Route("GET", "/v2/models/{model}", "metadata", call)])
    first = router.find(b"/v2/models/0")
    for number in range(1, MOST_REMEMBERED + 1):
        router.find(b"/v2/models/%d" % number)
    assert router.find(b"/v2/models/0") is not first
    assert router.find(b"/v2/models/0").names == ("0",)
