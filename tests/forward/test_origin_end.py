"""An origin's end of a link, and a peer that is played."""

import asyncio
from functools import partial

import pytest
from fields import with_fields
from peer import joined, run

from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InvalidRequest, Unavailable
from inferd.forward.heads import decode_sequence
from inferd.forward.line import ENDED, GARBLED, YES, FrameKind
from inferd.forward.message import Requests, encode_answer, encode_end
from inferd.forward.origin_end import OriginEnd
from inferd.forward.streaming import answers_there
from inferd.schedulers.execution.job import STREAM_AHEAD

FORM = b"12345678"


class Setting:
    async def begin(self):
        self.gone = []
        self.end = OriginEnd(3, "path", self.gone.append)
        self.peer = await joined(self.end)
        return self

    def ask(self, id=""):
        """Send a request, and wait for its answer as a scheduler does."""
        return asyncio.ensure_future(self._ask(with_fields(InferRequest("m", id=id), queued_ns=1)))

    async def _ask(self, request):
        number, done = self.end.begin(request, "1", FORM)
        try:
            return await done
        finally:
            self.end.give_up(number)

    def stream(self, id=""):
        """Return the answers to come of a stream, as a scheduler has them."""
        return answers_there(partial(self._send, id), self._here, self._note_back)

    sent = 0

    async def _send(self, id):
        begun = self.end.begin_stream(InferRequest("m", id=id), "1", FORM)
        self.sent += 1
        return self.end, begun

    async def _here(self):
        raise AssertionError
        yield

    def _note_back(self, number):
        assert number == 3
        self.sent -= 1

    def requests(self):
        """Return the ids of the requests that arrived, by number."""
        return {
            number: Requests().decode(head, data)[0].id
            for kind, number, head, data in self.peer.frames
            if kind in (FrameKind.REQUEST, FrameKind.STREAM)
        }

    def answer(self, number, kind=FrameKind.END, id=""):
        response = InferResponse("m", "1", id, final=kind == FrameKind.END)
        self.peer.send(
            kind, number, *encode_answer(with_fields(InferRequest("m"), started_ns=5), response)
        )

    def finish(self, number, error=None):
        self.peer.send(FrameKind.END, number, encode_end(InferRequest("m"), error))


def test_answers_may_come_in_any_order(until):
    async def go():
        setting = await Setting().begin()
        running = [setting.ask(id) for id in "abc"]
        await until(lambda: len(setting.requests()) == 3)
        for number, id in sorted(setting.requests().items(), reverse=True):
            setting.answer(number, id=f"to {id}")
        return [one.id for one in await asyncio.gather(*running)]

    assert run(go()) == ["to a", "to b", "to c"]


def test_one_that_is_given_up_is_cancelled_there_and_its_end_is_expected(until):
    async def go():
        setting = await Setting().begin()
        running, other = setting.ask("a"), setting.ask("b")
        await until(lambda: len(setting.requests()) == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: len(setting.peer.frames) == 3)
        kind, number, *_ = setting.peer.frames[-1]
        setting.answer(1)
        setting.answer(2, id="b")
        answer = await other
        return running.cancelled(), kind, number, answer.id, setting.end._given_up

    assert run(go()) == (True, FrameKind.CANCEL, 1, "b", set())


@pytest.mark.parametrize(
    "frame",
    [
        (FrameKind.END, 7, encode_end(InferRequest("m"), None)),
        (FrameKind.ANSWER, 1, encode_end(InferRequest("m"), None)),
        (FrameKind.REQUEST, 1, b""),
        (FrameKind.END, 1, b"\xc1"),
        (FrameKind.END, 1, b"\x91"),
        (FrameKind.HAS, 1, YES),
        (FrameKind.HAS, 7, YES),
        (FrameKind.END, 3, encode_end(InferRequest("m"), None)),
    ],
    ids=[
        "unknown number",
        "one of several",
        "a request",
        "garbled",
        "cut",
        "an answer to no question",
        "an answer to nothing",
        "the end of a question",
    ],
)
def test_what_no_owner_sends_ends_the_link_and_fails_what_is_under_way(frame, until):
    async def go():
        setting = await Setting().begin()
        running = [setting.ask("a"), setting.ask("b")]
        await until(lambda: len(setting.requests()) == 2)
        question = asyncio.ensure_future(setting.end.has_sequence("m", "1", 5))
        await until(lambda: len(setting.peer.frames) == 3)
        setting.peer.send(*frame)
        found = await asyncio.gather(*running, return_exceptions=True)
        assert not await question
        with pytest.raises(Unavailable, match="process 3 of the server has just ended"):
            await setting.ask("c")
        return found, setting.gone == [setting.end]

    found, is_gone = run(go())
    assert is_gone
    assert [type(one) for one in found] == [Unavailable] * 2
    assert all(one.is_lost and GARBLED in one.message for one in found)


def test_a_stream_gives_back_the_room_of_what_is_read(until):
    async def go():
        setting = await Setting().begin()
        answers = setting.stream("s")
        first = asyncio.ensure_future(anext(answers))
        await until(setting.requests)
        for number in range(STREAM_AHEAD):
            setting.answer(1, FrameKind.ANSWER, str(number))
        found = [(await first).id]
        await until(lambda: len(setting.peer.frames) == 2)
        credits_ = [len(setting.peer.frames) - 1]
        found += [(await anext(answers)).id for _ in range(STREAM_AHEAD - 1)]
        await until(lambda: len(setting.peer.frames) == 1 + STREAM_AHEAD)
        setting.finish(1, InvalidRequest("after all"))
        with pytest.raises(InvalidRequest, match="after all"):
            await anext(answers)
        shares = [bytes(head) for kind, _, head, _ in setting.peer.frames[1:]]
        return found, credits_, shares, setting.end._calls or setting.sent

    found, credits_, shares, calls = run(go())
    assert found == [str(number) for number in range(STREAM_AHEAD)]
    assert credits_ == [1]
    assert shares == [b"\1"] * STREAM_AHEAD
    assert not calls


def test_a_stream_that_is_left_is_cancelled_and_late_answers_are_dropped(until):
    async def go():
        setting = await Setting().begin()
        answers = setting.stream()
        first = asyncio.ensure_future(anext(answers))
        await until(setting.requests)
        setting.answer(1, FrameKind.ANSWER)
        await first
        await answers.aclose()
        await until(lambda: setting.peer.frames[-1][0] == FrameKind.CANCEL)
        setting.answer(1, FrameKind.ANSWER)
        setting.finish(1)
        running = setting.ask()
        await until(lambda: 2 in setting.requests())
        setting.answer(2, id="x")
        return (await running).id, setting.end._given_up

    assert run(go()) == ("x", set())


def test_one_that_is_retired_ends_when_nothing_is_under_way(until):
    async def go():
        setting = await Setting().begin()
        running = setting.ask("a")
        await until(setting.requests)
        setting.end.retire()
        assert setting.end.is_open
        setting.answer(1, id="a")
        found = (await running).id
        await until(lambda: setting.peer.ends)
        return found, setting.peer.ends, setting.gone == [setting.end]

    assert run(go()) == ("a", [ENDED], True)


def test_a_sequence_lives_there_if_the_owner_says_so(until):
    async def go():
        setting = await Setting().begin()
        questions = [
            asyncio.ensure_future(setting.end.has_sequence("m", "1", id)) for id in (5, "5", "6")
        ]
        frames = await until(lambda: len(setting.peer.frames) == 3 and setting.peer.frames)
        asked = [decode_sequence(head).id for _, _, head, _ in frames]
        questions[2].cancel()
        for (kind, number, *_), answer in zip(frames, (YES, b"", YES), strict=True):
            setting.peer.send(kind, number, answer)
        found = await asyncio.gather(*questions, return_exceptions=True)
        await until(lambda: not setting.end._calls)
        setting.end.close()
        never = await setting.end.has_sequence("m", "1", 5)
        return asked, found[:2], never

    assert run(go()) == ([5, "5", "6"], [True, False], False)


@pytest.mark.parametrize("id", [1 << 64, "\ud800"])
def test_an_id_that_cannot_be_passed_on_lives_nowhere_else(id):
    async def go():
        setting = await Setting().begin()
        return await setting.end.has_sequence("m", "1", id), setting.end._calls

    assert run(go()) == (False, {})


def test_an_owner_that_ends_gets_no_more_requests(until):
    async def go():
        setting = await Setting().begin()
        running = setting.ask("a")
        await until(setting.requests)
        setting.peer.send(FrameKind.DISMISSAL, 0)
        await until(lambda: setting.end.is_retired)
        setting.answer(1, id="a")
        found = (await running).id
        await until(lambda: setting.peer.ends)
        return found, setting.gone == [setting.end]

    assert run(go()) == ("a", True)
