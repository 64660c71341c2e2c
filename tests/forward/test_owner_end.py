"""An owner's end of a link, and a peer that is played."""

import asyncio
import gc
import weakref

import pytest
from peer import joined, run

from inferd.aio.driver import fulfil
from inferd.aio.promise import Promise
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, Cancelled, InvalidRequest, ModelNotFound, Unavailable
from inferd.forward.heads import SequenceName, encode
from inferd.forward.line import YES, FrameKind
from inferd.forward.message import encode_request
from inferd.forward.owned import OwnedVersions
from inferd.forward.owner_end import OwnerEnd
from inferd.schedulers.execution.job import STREAM_AHEAD, share_of
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FORM = b"12345678"


class Tracked:
    """Lives as long as the request that has it among its parameters."""

    def __init__(self, request):
        self.id = request.id


class Steered:
    """A version, owned and scheduled by itself, whose answers the test gives."""

    def __init__(self):
        self.model, self.version, self.form, self.is_leaving = "m", "1", FORM, False
        self.has_instances = True
        self.sequence_count = 1
        self.pending = {}
        self.requests = []
        self.cancelled = []
        self.yielded = 0

    def run_here_now(self, request):
        if request.id == "bug":
            raise ZeroDivisionError
        return InferResponse("m", "1", request.id) if request.id == "now" else None

    def check(self, request, response):
        if response.id == "wrong":
            msg = "no such output"
            raise BackendFailed(msg)

    def has_sequence(self, id):
        return id == "lives" or id in [request.id for request in self.requests]

    async def run_here(self, request):
        self.requests.append(Tracked(request))
        request.parameters["tracked"] = self.requests[-1]
        if request.id == "refused":
            msg = "why"
            raise InvalidRequest(msg)
        promise = self.pending[request.id] = Promise()
        try:
            return await promise
        except asyncio.CancelledError:
            self.cancelled.append(request.id)
            raise

    async def stream_here(self, request):
        try:
            for number in range(int(request.parameters["count"])):
                self.yielded += 1
                data = bytes(request.parameters.get("size", 0))
                tensor = Tensor("x", DataType.UINT8, (len(data),), data)
                yield InferResponse("m", "1", str(number), [tensor], final=False)
            if request.id == "fails":
                msg = "in the middle"
                raise Unavailable(msg)
        except GeneratorExit:
            self.cancelled.append(request.id)
            raise


class Setting:
    """An owner's end with one version, and its peer."""

    async def begin(self):
        self.version = Steered()
        owned = OwnedVersions()
        owned.add(self.version)
        self.gone, self.done = [], []
        self.end = OwnerEnd(owned, self.gone.append, self.done.append)
        self.peer = await joined(self.end)
        return self

    def ask(self, number, id="", kind=FrameKind.REQUEST, form=FORM, **parameters):
        request = InferRequest("m", id=id, parameters=parameters)
        self.peer.send(kind, number, *encode_request(request, "1", form))

    def answer(self, id, response=None):
        fulfil(self.version.pending.pop(id), response or InferResponse("m", "1", id))


def outcome(found):
    return found.id if isinstance(found, InferResponse) else (type(found), found.message)


def test_answers_leave_as_they_come(until):
    async def go():
        setting = await Setting().begin()
        for number, id in enumerate(("a", "b", "now", "c")):
            setting.ask(number, id)
        peer, pending = setting.peer, setting.version.pending
        await until(lambda: len(pending) == 3 and peer.frames)
        for id in "cab":
            setting.answer(id)
        await until(lambda: len(peer.frames) == 4)
        return [number for _, number, _, _ in peer.frames], peer.ended(), setting.end._running

    numbers, ended, running = run(go())
    assert numbers == [2, 3, 0, 1]
    assert {number: one.id for number, one in ended.items()} == dict(
        enumerate(("a", "b", "now", "c"))
    )
    assert not running


def test_what_cannot_run_is_told_to_its_origin_alone(until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, "refused")
        setting.ask(2, "a", form=b"another.")
        setting.ask(3, "bug")
        setting.ask(4, "late")
        await until(lambda: setting.version.pending)
        setting.answer("late", InferResponse("m", "1", "wrong"))
        await until(lambda: len(setting.peer.frames) == 4)
        return setting.peer.ended(), setting.peer.ends

    ended, ends = run(go())
    assert [type(ended[number]) for number in (1, 2, 3, 4)] == [
        InvalidRequest,
        Unavailable,
        BackendFailed,
        BackendFailed,
    ]
    assert (ended[1].message, ended[4].message) == ("why", "no such output")
    assert ended[3].message == "ZeroDivisionError"
    assert ends == []


def test_a_cancelled_request_ends_at_once_and_its_answer_is_dropped(until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, "a")
        setting.ask(2, "b")
        await until(lambda: len(setting.version.pending) == 2)
        setting.peer.send(FrameKind.CANCEL, 1)
        setting.peer.send(FrameKind.CANCEL, 1)  # as when the answer and it cross
        setting.peer.send(FrameKind.CANCEL, 77)
        await until(lambda: setting.peer.frames)
        setting.answer("b")
        await until(lambda: len(setting.peer.frames) == 2)
        return setting.version.cancelled, setting.peer.ended(), setting.peer.ends

    cancelled, ended, ends = run(go())
    assert cancelled == ["a"]
    assert type(ended[1]) is Cancelled
    assert ended[2].id == "b"
    assert ends == []


def test_one_that_is_cancelled_when_its_answer_is_there_ends_once(until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, "a")
        await until(lambda: setting.version.pending)
        setting.answer("a")  # its coroutine goes on in a moment
        setting.end._receive(FrameKind.CANCEL, 1, memoryview(b""), memoryview(b""))
        setting.ask(2, "now")
        await until(lambda: len(setting.peer.frames) == 2)
        return setting.peer.ended()

    ended = run(go())
    assert type(ended[1]) is Cancelled
    assert ended[2].id == "now"


def test_a_stream_is_no_further_ahead_than_its_reader_allows(until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, kind=FrameKind.STREAM, count=100)
        peer = setting.peer
        await until(lambda: len(peer.frames) == STREAM_AHEAD)
        ahead = [setting.version.yielded]
        peer.send(FrameKind.CREDIT, 1, b"\3")
        await until(lambda: len(peer.frames) == STREAM_AHEAD + 3)
        ahead.append(setting.version.yielded)
        for _ in range(6):
            peer.send(FrameKind.CREDIT, 1, bytes((STREAM_AHEAD,)))
        await until(lambda: len(peer.frames) == 101)
        return ahead, [kind for kind, *_ in peer.frames], setting.end._running

    ahead, kinds, running = run(go())
    assert ahead == [STREAM_AHEAD + 1, STREAM_AHEAD + 4]
    assert kinds == [FrameKind.ANSWER] * 100 + [FrameKind.END]
    assert not running


def test_large_answers_travel_alone(until):
    answer = InferResponse("m", "1", outputs=[Tensor("x", DataType.UINT8, (9,), bytes(2 << 20))])
    assert share_of(answer) == STREAM_AHEAD

    async def go():
        setting = await Setting().begin()
        setting.ask(1, kind=FrameKind.STREAM, count=3, size=2 << 20)
        await until(lambda: setting.peer.frames)
        await until(lambda: setting.version.yielded == 2)
        first = len(setting.peer.frames)
        setting.peer.send(FrameKind.CREDIT, 1, bytes((STREAM_AHEAD,)))
        await until(lambda: len(setting.peer.frames) == 2)
        return first

    assert run(go()) == 1


def test_the_error_of_a_stream_comes_after_its_answers(until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, "fails", FrameKind.STREAM, count=2)
        await until(lambda: len(setting.peer.frames) == 3)
        return setting.peer.ended()[1]

    assert outcome(run(go())) == (Unavailable, "in the middle")


@pytest.mark.parametrize(
    "frame",
    [
        (FrameKind.ANSWER, 5, b""),
        (FrameKind.END, 5, b""),
        (FrameKind.REQUEST, 5, b"\xc1"),
        (FrameKind.REQUEST, 1, *encode_request(InferRequest("m"), "1", FORM)),
        (FrameKind.CREDIT, 1, b"\1"),
        (FrameKind.CREDIT, 9, b"\1\1"),
        (FrameKind.HAS, 3, b"\x91\x01"),
        (FrameKind.DISMISSAL, 0, b""),
    ],
    ids=[
        "answer",
        "end",
        "garbled",
        "same number",
        "credit for one answer",
        "two credits",
        "no sequence",
        "a dismissal",
    ],
)
def test_what_no_origin_sends_ends_the_link_and_what_runs_on_it(frame, until):
    async def go():
        setting = await Setting().begin()
        setting.ask(1, "a")
        setting.ask(2, "s", FrameKind.STREAM, count=1000)
        await until(lambda: setting.version.pending and setting.version.yielded > STREAM_AHEAD)
        setting.peer.send(*frame)
        await until(lambda: setting.peer.ends and len(setting.version.cancelled) == 2)
        other = await Setting().begin()  # nothing else is harmed
        other.ask(1, "now")
        await until(lambda: other.peer.frames)
        return sorted(setting.version.cancelled), setting.gone == [setting.end]

    assert run(go()) == (["a", "s"], True)


def test_whether_a_sequence_lives_here_is_answered_in_the_order_of_all_questions(until):
    names = [("m", "1", "lives"), ("m", "1", 5), ("m", "2", "lives"), ("n", "1", "lives")]

    async def go():
        setting = await Setting().begin()
        for number, name in enumerate(names):
            setting.peer.send(FrameKind.HAS, number, encode(SequenceName(*name)))
        frames = await until(lambda: len(setting.peer.frames) == 4 and setting.peer.frames)
        return [(kind, number, bytes(head)) for kind, number, head, _ in frames]

    assert run(go()) == [(FrameKind.HAS, number, b"" if number else YES) for number in range(4)]


def test_a_sequence_whose_first_request_has_just_arrived_on_another_line_lives_here(until):
    async def go():
        setting, other = await Setting().begin(), await Setting().begin()
        other.end._versions.add(setting.version)
        other.end._versions.remove(other.version)
        other.peer.send(FrameKind.HAS, 1, encode(SequenceName("m", "1", "new")))
        setting.ask(1, "new")
        frames = await until(lambda: other.peer.frames)
        return bytes(frames[0][2])

    assert run(go()) == YES


def test_an_origin_may_say_that_it_has_no_more_clients_and_an_owner_that_it_ends(until):
    async def go():
        setting = await Setting().begin()
        setting.peer.send(FrameKind.LAST, 0)
        await until(lambda: setting.done)
        setting.end.dismiss()
        await until(lambda: setting.peer.frames)
        return setting.done == [setting.end], setting.peer.frames[0][0], setting.peer.ends

    assert run(go()) == (True, FrameKind.DISMISSAL, [])


def test_a_model_that_is_not_there_is_not_found_by_another_version(until):
    async def go():
        setting = await Setting().begin()
        request = InferRequest("other")
        setting.peer.send(FrameKind.REQUEST, 1, *encode_request(request, "1", FORM))
        await until(lambda: setting.peer.frames)
        return setting.peer.ended()[1]

    kind, text = outcome(run(go()))
    assert kind is not ModelNotFound
    assert text.startswith("model 'other' version 1 is being loaded or unloaded in the process")


def test_a_request_that_has_run_leaves_nothing_for_the_garbage_collector(until):
    async def go():
        setting = await Setting().begin()
        gc.collect()
        gc.disable()
        try:
            setting.ask(1, "a")
            setting.ask(2, "refused")
            setting.ask(3, "b")
            await until(lambda: len(setting.version.pending) == 2)
            runs = [weakref.ref(request) for request in setting.version.requests]
            setting.version.requests.clear()
            setting.answer("a")
            setting.peer.send(FrameKind.CANCEL, 3)
            await until(lambda: len(setting.peer.frames) == 3)
            del setting.version.pending["b"]
            await until(lambda: not setting.end._due)
            return [run() for run in runs]
        finally:
            gc.enable()

    assert run(go()) == [None] * 3
