"""What all routes have in common; what each answers has tests of its own."""

import pytest

from inferd.errors import DocumentNotFound, Restricted, TooLarge
from inferd.http.access import Access, Secret
from inferd.http.head_template import NO_VARIATIONS
from inferd.http.message import NO_REQUEST, HttpAnswer
from inferd.http.router import Route, Router
from inferd.http.routes import Routes

ACCESS = Access({"a": Secret(b"key", b"value")})


class Empty(Routes):
    """Answers everything with nothing."""

    def __init__(self):
        table = [Route("GET", "/a/{x}", "a", self.answer), Route("GET", "/b", "b", self.answer)]
        table.append(Route("POST", "/short/{x}", "", self.answer, None, 10))
        super().__init__(
            Router(table, ACCESS),
            forward=None,
            refusable="b",
            variations=NO_VARIATIONS,
        )

    async def answer(self, _request):
        return HttpAnswer(200, [])


async def test_to_begin_is_to_answer_later():
    assert (await Empty().begin(NO_REQUEST)).status == 200


def test_access_is_checked_where_there_is_a_guard():
    routes = Empty()
    for target in (b"/b", b"/nowhere"):
        routes.check_access(target, {})
    routes.check_access(b"/a/1", {b"key": b"value"})
    with pytest.raises(Restricted):
        routes.check_access(b"/a/1", {})


def test_one_group_of_calls_may_be_refused():
    assert [Empty().is_refusable(target) for target in (b"/a/1", b"/b", b"/c")] == [0, 1, 0]


def test_requests_are_not_timed():
    assert not Empty().is_timed()


def test_a_route_may_take_short_bodies_alone():
    routes = Empty()
    for length in (0, 10):
        routes.check_length(b"/short/1", length)
    for length in (11, 1 << 40, -1):
        with pytest.raises(TooLarge, match="10 bytes"):
            routes.check_length(b"/short/1", length)
        for target in (b"/b", b"/a/1"):
            routes.check_length(target, length)


def test_what_is_not_there_takes_no_body_that_is_not_short():
    with pytest.raises(DocumentNotFound, match="there is nothing at '/nowhere'"):
        Empty().check_length(b"/nowhere?x=1", 1 << 20)
