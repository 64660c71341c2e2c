"""The life of a worker, and of those who wait for it, whatever the worker says."""

import asyncio
import threading

import pytest
from line_peer import PATIENCE_S, packed, result, taken_count
from scene import READY, begun, files_of, played, until

from inferd.backends.worker.lines import MAX_LOGS_PER_S, Rate
from inferd.backends.worker.supervisor import PATIENCE
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import BackendFailed, InferdError, Unavailable
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_worker import packet

# --- the start ---


def test_a_worker_that_is_ready_is_free(scene):
    one = scene(packed(packet.READY, [[], "what it says"]))
    assert one.instance.start() == "what it says"
    assert one.peer.hear()[:2] == (packet.START, [{"a": 1}])
    assert one.instance.is_free


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (packed(packet.FAILED, [[], "no weights"]), "model 'm': no weights"),
        (packed(packet.FAILED, [[], 1]), "was killed: it sent what no worker sends at the start"),
        (packed(packet.READY, [[], 5]), "was killed: it sent what no worker sends at the start"),
        (b"x", "was killed: it sent what no worker sends at the start"),
        (packed(packet.LOG, [[], 0]), "was killed: it sent what no worker sends at the start"),
    ],
)
def test_a_start_that_fails_says_why_and_ends_the_process(scene, said, expected):
    one = scene(said)
    with pytest.raises(BackendFailed, match=expected):
        one.instance.start()
    assert one.process.has_ended.is_set()
    assert one.process.is_closed


@pytest.mark.slow
def test_a_worker_that_ends_while_it_starts_is_told(scene):
    one = scene(None)

    def end():
        one.made.wait(PATIENCE_S)
        one.process.end("was killed by signal 9 (SIGKILL)")

    threading.Thread(target=end).start()
    expected = r"its worker process was killed by signal 9 \(SIGKILL\) at the start"
    with pytest.raises(BackendFailed, match=expected):
        one.instance.start()


def test_one_that_says_why_and_ends_while_the_server_looks_at_it_is_heard(scene):
    one = scene(None)

    class EndsNow(threading.Event):
        def is_set(self):
            if not super().is_set():
                one.peer.say(packed(packet.FAILED, [[], "no weights"]))
                self.set()
            return True

    def prepare(process):
        process.has_ended = EndsNow()

    one.prepare = prepare
    with pytest.raises(BackendFailed, match="no weights"):
        one.instance.start()


def test_a_start_has_its_time(scene):
    one = scene(None, start_timeout_s=0.01)
    with pytest.raises(BackendFailed, match=r"was not ready within 0\.01 s"):
        one.instance.start()
    assert one.process.reason == "was given up"


def test_a_start_nobody_wants_any_more_is_given_up(scene):
    one = scene(None, files=files_of(is_wanted=lambda: False))
    with pytest.raises(Unavailable, match="model 'm' is being unloaded"):
        one.instance.start()
    assert one.process.has_ended.is_set()


def test_a_close_ends_a_start(scene):
    one = scene(None)
    threading.Timer(0.01, one.instance.close).start()
    with pytest.raises(InferdError):
        one.instance.start()
    assert one.process.has_ended.is_set()


# --- answers ---


def test_an_execution_is_answered(scene):
    one = scene()
    one.instance.start()

    async def play():
        outcomes, number = begun(one, "a")
        assert not one.instance.is_free
        one.peer.say(
            result(number, [[number, [["X", "INT32", [1], 0, 4]], None, None, True, 1]], bytes(4))
        )
        await until(lambda: outcomes)
        [[answer]] = outcomes
        assert isinstance(answer, InferResponse)
        assert (answer.id, answer.outputs[0].shape) == ("a", (1,))
        assert one.instance.is_free

    played(play, one)


FINE = [[], None, None, True, 1]

PASSED_OVER = {
    "a result of no execution": lambda n: result(10**12, []),
    "a result of the one before": lambda n: result(n - 1, []),
    "an answer to no request": lambda n: packed(packet.ANSWER, [[], [[10**12, *FINE]]]),
    "a ready": lambda n: READY,
    "a release of nothing": lambda n: packed(packet.RELEASE, [[1, 2, 3, 10**20, -1]]),
    "a packet of no kind": lambda n: packed(200, [[]]),
    "a kind that only the server says": lambda n: packed(packet.EXECUTE, [[]]),
    "a log of no level": lambda n: packed(packet.LOG, [[], 99, "text"]),
}


@pytest.mark.parametrize("what", PASSED_OVER)
def test_what_means_nothing_harms_nobody(scene, what):
    one = scene()
    one.instance.start()

    async def play():
        before, number = begun(one, "before")
        one.peer.say(result(number, [[number, *FINE]]))
        await until(lambda: before)
        outcomes, number = begun(one, "a")
        one.peer.say(PASSED_OVER[what](number))
        one.peer.say(result(number, [[number, *FINE]]))
        await until(lambda: outcomes)
        assert outcomes[0][0].id == "a"
        assert len(outcomes) == len(before) == 1
        assert not one.process.has_ended.is_set()

    played(play, one)


HOSTILE = {
    "a tensor outside the packet": lambda n: result(
        n, [[n, [["X", "INT32", [8], 640, 32]], None, None, True, 1]], bytes(64)
    ),
    "a time that runs backwards": lambda n: result(n, [[n, *FINE]], began_ns=2, ended_ns=1),
    "a time to come": lambda n: result(n, [[n, *FINE]], began_ns=1, ended_ns=1 << 62),
    "answers of another kind": lambda n: result(n, {"a": 1}),
    "an error that is a text": lambda n: result(n, [[n, None, "oh", None, True, 1]]),
    "an answer cut off": lambda n: packed(packet.ANSWER, [[], [[n, []]]]),
    "bytes": lambda n: b"\x00" * 500,
    "a block of the server's that it has not": lambda n: result(
        n, [[n, [["X", "UINT8", [8], 0, 8, 0]], None, None, True, 1]]
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_worker_says_costs_it_its_process_and_its_requests(scene, what):
    one = scene()
    one.instance.start()

    async def play():
        outcomes, number = begun(one, "a")
        one.peer.say(HOSTILE[what](number))
        await until(lambda: outcomes)
        assert outcomes[0].is_lost
        assert "was killed: it sent what no worker sends while the request" in str(outcomes[0])
        await until(lambda: len(one.processes) == 2 and one.instance.is_free)
        outcomes, number = begun(one, "b")
        one.peer.say(READY)
        one.peer.say(result(number, [[number, *FINE]]))
        await until(lambda: outcomes)
        assert outcomes[0][0].id == "b"

    played(play, one)


def test_a_request_is_answered_once(scene):
    one = scene()
    one.instance.start()

    async def play():
        outcomes, number = begun(one, "a", "b")
        first, second = number - 1, number
        twice = [[first, *FINE], [first, *FINE]]
        one.peer.say(result(number, twice))
        one.peer.say(result(number, twice))
        await until(lambda: one.instance.is_free)
        assert not outcomes
        one.peer.say(
            packed(packet.ANSWER, [[], [[first, *FINE], [second, *FINE], [second, *FINE]]])
        )
        await until(lambda: outcomes)
        one.peer.say(result(number, [[second, *FINE]]))
        others, number = begun(one, "c")
        assert one.instance.running_count == 1
        one.peer.say(result(number, [[number, *FINE]]))
        await until(lambda: others)
        assert [answer.id for answer in outcomes[0]] == ["a", "b"]
        assert len(outcomes) == 1

    played(play, one)


def test_a_stream_that_nobody_reads_does_not_fill_the_memory(scene):
    one = scene()
    one.instance.start()

    async def play():
        answers = []
        number = one.instance.begin_stream(
            InferRequest("m"), lambda answer, share: answers.append(answer)
        )
        for _ in range(100):
            one.peer.say(packed(packet.ANSWER, [[], [[number, [], None, {"a": 1}, False, 1]]]))
        await until(lambda: answers and answers[-1] is None)
        assert len(answers) < 100
        assert "sent what no worker sends" in str(answers[-2])

    played(play, one)


def test_a_stream_that_is_read_goes_on(scene):
    one = scene()
    one.instance.start()

    async def play():
        answers = []

        def deliver(answer, share):
            answers.append(answer)
            if answer is not None:
                one.instance.credit(number, share)

        number = one.instance.begin_stream(InferRequest("m"), deliver)
        for count in range(200):
            one.peer.say(packed(packet.ANSWER, [[], [[number, [], None, {"a": 1}, False, 1]]]))
            await until(lambda count=count: len(answers) == count + 1)
        one.peer.say(packed(packet.ANSWER, [[], [[number, None, None, None, True, 1]]]))
        one.peer.say(packed(packet.ANSWER, [[], [[number, None, None, None, True, 1]]]))
        await until(lambda: answers[-1] is None)
        assert len(answers) == 201

    played(play, one)


# --- answers that lie where their requests came ---

LARGE = bytes(range(250)) * 200


def asked(one, begin):
    """Begin with a large input; return its number, and where its bytes lie for the worker."""
    tensor = Tensor("X", DataType.UINT8, (len(LARGE),), LARGE)
    begin(InferRequest("m", inputs=[tensor]))
    data = None
    while data is None:  # the first packet has none
        _, _, data = one.peer.hear()
    block, at = one.peer.line.find(data)
    return one.instance._numbers, block.offset, at


def named(number, block, at, more=0):
    """Return the packet whose output lies in a block of the server's, which is released."""
    size = len(LARGE) + more
    outputs = [["Y", "UINT8", [size], at, size, block]]
    document = [[block], [[0, outputs, None, None, True, 1]]]
    return packed(packet.RESULT, document, numbers=(number, 1, 2))


def test_an_answer_may_lie_in_the_memory_that_its_request_came_in(scene):
    one = scene()
    one.instance.start()

    async def play():
        outcomes = []
        place = asked(one, lambda request: one.instance.begin([request], outcomes.append))
        one.peer.say(named(*place))
        await until(lambda: outcomes)
        [[answer]] = outcomes
        assert bytes(answer.outputs[0].view()) == LARGE
        assert taken_count(one.peer.arena) == 1
        del answer
        outcomes.clear()
        await until(lambda: taken_count(one.peer.arena) == 0)

    played(play, one)


def test_a_streamed_answer_may_lie_there_too(scene):
    one = scene()
    one.instance.start()

    async def play():
        answers = []

        def begin(request):
            one.instance.begin_stream(request, lambda answer, _: answers.append(answer))

        one.peer.say(named(*asked(one, begin)))
        await until(lambda: len(answers) == 2)
        assert bytes(answers[0].outputs[0].view()) == LARGE

    played(play, one)


@pytest.mark.parametrize("beyond", [1, 64, 1 << 62])
def test_an_answer_lies_in_the_block_that_it_names_or_costs_the_process(scene, beyond):
    one = scene()
    one.instance.start()

    async def play():
        outcomes = []
        place = asked(one, lambda request: one.instance.begin([request], outcomes.append))
        one.peer.say(named(*place, more=64 + beyond))
        await until(lambda: outcomes)
        assert "it sent what no worker sends" in str(outcomes[0])
        await until(lambda: one.instance.is_free)

    played(play, one)


# --- ends ---


@pytest.mark.slow  # it is tried again after a second
def test_a_worker_that_fails_again_and_again_is_tried_later(scene):
    one = scene()
    one.instance.start()
    one.at_start = packed(packet.FAILED, [[], "no weights"])

    async def play():
        one.process.end("was killed by signal 9 (SIGKILL)")
        await until(lambda: one.instance.unavailable_reason)
        assert "no weights; the next start is in" in one.instance.unavailable_reason
        assert len(one.processes) == PATIENCE
        one.at_start = READY
        await until(lambda: not one.instance.unavailable_reason)
        assert one.instance.is_free

    played(play, one)


@pytest.mark.slow  # it is tried again after three seconds and a half
def test_a_worker_that_its_requests_end_again_and_again_is_soon_back(scene):
    one = scene()
    one.instance.start()

    async def play():
        for count in range(1, 5):
            outcomes, _ = begun(one, "a")
            one.process.end("was killed by signal 11 (SIGSEGV)")
            await until(lambda outcomes=outcomes: outcomes)
            assert outcomes[0].is_lost
            assert not one.instance.unavailable_reason
            await until(lambda count=count: one.instance.is_free and len(one.processes) > count)

    played(play, one)


def test_a_worker_that_logs_without_end_is_logged_in_part(scene, caplog):
    one = scene()
    one.instance.start()
    one.instance.lines.rate = Rate(MAX_LOGS_PER_S, lambda: 7.0)

    async def play():
        for number in range(MAX_LOGS_PER_S + 500):
            one.peer.say(packed(packet.LOG, [[], 1, f"line {number}"]))
            one.instance._link.read()
        outcomes, number = begun(one, "a")
        one.peer.say(result(number, [[number, *FINE]]))
        await until(lambda: outcomes)

    played(play, one)
    assert [one.getMessage() for one in caplog.records if "line" in one.getMessage()] == [
        f"model 'm': line {number}" for number in range(MAX_LOGS_PER_S)
    ]


@pytest.mark.slow  # it is tried again after a quarter of a second
def test_a_worker_that_cannot_even_be_made_is_tried_again(scene):
    one = scene()
    one.instance.start()
    one.refusals = [OSError(24, "Too many open files")]

    async def play():
        one.process.end("was killed by signal 9 (SIGKILL)")
        await until(lambda: one.instance.is_free and len(one.processes) == 2)
        assert not one.refusals

    played(play, one)


def test_a_worker_that_closes_its_socket_has_a_moment_to_end(scene):
    one = scene()
    one.instance.start()

    async def play():
        outcomes, _ = begun(one, "a")
        one.peer.other.close()
        one.process.end("ended with code 3")
        await until(lambda: outcomes)
        assert "ended with code 3 while the request was in it" in str(outcomes[0])

    played(play, one)


def test_who_is_asked_to_finalize_may_take_its_time(scene):
    one = scene()
    one.instance.start()

    async def play():
        one.instance.close()
        assert one.peer.hear()[0] == packet.START
        assert one.peer.hear()[0] == packet.FINALIZE
        assert not one.process.has_ended.is_set()
        one.process.end()
        await one.instance.closed(PATIENCE_S)
        assert one.process.is_closed

    played(play, one)


def test_who_does_not_finalize_in_time_is_ended(scene):
    one = scene()
    one.instance.start()

    async def play():
        one.instance.close()
        await one.instance.closed(0.01)
        assert one.process.reason == "did not finalize in time"
        assert one.process.is_closed


def test_a_worker_that_has_ended_before_it_is_closed_leaves_no_socket(scene):
    one = scene()
    one.instance.start()
    one.process.end()
    one.instance.close()
    assert one.process.is_closed


def test_a_worker_that_outlives_the_servers_loop_leaves_no_socket(scene):
    one = scene()
    one.instance.start()

    async def play():
        one.instance.attach(asyncio.get_running_loop())

    asyncio.run(play())
    one.process.end()
    assert one.process.is_closed

    played(play, one)


# --- whether it is ready ---

CAN_SAY = packed(packet.READY, [[], None, True])


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_model_that_can_be_asked_whether_it_is_ready_is_asked(scene, is_ready):
    one = scene(CAN_SAY)
    one.instance.start()
    one.peer.hear()

    async def play():
        asking = asyncio.ensure_future(one.instance.says_ready())
        await asyncio.sleep(0)
        assert one.peer.hear()[0] == packet.ASK
        one.peer.say(packed(packet.SAID, [[], is_ready]))
        assert await asking is is_ready

    played(play, one)


def test_a_model_that_cannot_be_asked_is_ready(scene):
    one = scene()
    one.instance.start()
    one.peer.hear()

    async def play():
        assert await one.instance.says_ready()
        assert not one.peer.is_told()

    played(play, one)


def test_who_asks_a_worker_that_ends_meanwhile_waits_no_longer(scene):
    one = scene(CAN_SAY)
    one.instance.start()

    async def play():
        asking = asyncio.ensure_future(one.instance.says_ready())
        await asyncio.sleep(0)
        one.process.end("ended with code 1")
        assert await asking

    played(play, one)
