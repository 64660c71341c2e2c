"""Host and WorkerInstance, joined by a real line in one process: no worker is started."""

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from inferd.backends.worker.host import Host
from inferd.backends.worker.instance import WorkerInstance
from inferd.backends.worker.plan import WorkerPlan
from inferd.backends.worker.under_way import AHEAD_NS
from inferd.core.interfaces import ModelFiles, Opened
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd_worker import packet
from inferd_worker.arena import Arena, Received

FILES = ModelFiles(Path(), 1, Path(), Path())

SIZE = 1 << 20
FP32 = DataType.FP32


class Doubler:
    """Gives twice its input, in the worker's memory; says what it was asked."""

    def __init__(self):
        self.asked = []
        self.is_closed = False

    def execute(self, requests):
        self.asked.append([request.id for request in requests])
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        if request.id == "bad":
            return InvalidRequest("model 'm': that is bad")
        if request.id == "odd":
            msg = "/opt/secret/x: what is this"
            raise ValueError(msg)
        if request.id == "exit":
            sys.exit(3)
        [tensor] = request.inputs
        names = [wanted.name for wanted in request.outputs] or ["Y"]
        twice = tensor.numpy() * 2
        return InferResponse("m", "1", outputs=[Tensor.from_numpy(n, twice, FP32) for n in names])

    def close(self):
        self.is_closed = True


MADE = []


def open_doubler(settings):
    made = Doubler()
    MADE.append(made)
    return Opened(made, made)


def tell(settings):
    return settings["model"].upper()


def refuse(settings):
    msg = "model 'm': there is no such file"
    raise InvalidConfig(msg)


def explode(settings):
    msg = "no driver"
    raise RuntimeError(msg)


class ThreadProcess:
    """A Process whose Host runs in a thread."""

    reason = "ended"

    def __init__(self, told):
        del told
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [os.memfd_create(f"inferd-test-{os.getpid()}") for _ in "12"]
        for fd in fds:
            os.ftruncate(fd, SIZE)
        self.arena, outgoing = (Arena(fd, SIZE, 0) for fd in fds)
        self.received = Received(fds[1], SIZE, 0, writable=False)
        host = Host(other, outgoing, Received(fds[0], SIZE, 0, writable=True))
        self.has_ended = threading.Event()
        self._fds = fds
        self._other = other
        self._thread = threading.Thread(target=self._run, args=(host,))
        self.ended = lambda _: None

    def start(self):
        self._thread.start()

    def _run(self, host):
        host.run()
        self._other.close()
        self.has_ended.set()
        self.ended(self.reason)

    def kill(self, reason):
        self.socket.close()

    def close(self):
        self.socket.close()
        if self._thread is not threading.current_thread():
            self._thread.join(10)
        while self._fds:
            os.close(self._fds.pop())


@pytest.fixture
def started():
    """started(task) is an instance whose host has done `task`."""
    made = []

    def start(task="open_doubler", ahead=1, **more):
        settings = {"task": f"{__name__}:{task}", "model": "m", **more}
        plan = WorkerPlan("m", FILES, settings, ThreadProcess, start_timeout_s=30, ahead=ahead)
        instance = WorkerInstance(plan)
        told = instance.start()
        made.append(instance)
        return told if told is not None else instance

    yield start
    for instance in made:
        process = instance._process
        instance._link.send(packet.FINALIZE, [])
        assert process.has_ended.wait(30)
        process.close()
    assert all(one.is_closed for one in MADE)
    MADE.clear()


def asked(*values, id="", outputs=(), size=1):
    tensor = Tensor.from_numpy("X", np.tile(np.float32(values), size), FP32)
    return InferRequest("m", id=id, inputs=[tensor], outputs=[WantedOutput(n) for n in outputs])


def test_an_instance_is_asked_as_in_the_server(started):
    instance = started()
    [answer] = instance.execute([asked(1, 2, id="a")])
    assert (answer.model, answer.version, answer.id) == ("m", "1", "a")
    [output] = answer.outputs
    assert (output.name, output.shape, output.numpy().tolist()) == ("Y", (2,), [2, 4])
    answers = instance.execute([asked(1), asked(2), asked(3)])
    assert [one.outputs[0].numpy().tolist() for one in answers] == [[2], [4], [6]]
    assert [len(ids) for ids in MADE[0].asked] == [1, 3]


def test_large_tensors_lie_in_shared_memory_and_are_given_back(started):
    instance = started()
    for value in range(20):  # each is an eighth of what there is
        [answer] = instance.execute([asked(value, size=SIZE // 32)])
        assert answer.outputs[0].numpy()[-1] == 2 * value


def test_only_wanted_outputs_come_back(started):
    [answer] = started().execute([asked(1, outputs=("Y", "Z"))])
    assert [tensor.name for tensor in answer.outputs] == ["Y", "Z"]


def test_failures_keep_their_reason_and_their_words(started):
    instance = started()
    bad, good = instance.execute([asked(1, id="bad"), asked(1)])
    assert (type(bad), bad.message) == (InvalidRequest, "model 'm': that is bad")
    assert isinstance(good, InferResponse)
    [odd] = instance.execute([asked(1, id="odd")])
    assert isinstance(odd, BackendFailed)
    assert odd.message.startswith("model 'm': ")
    assert "secret" not in odd.message
    [left] = instance.execute([asked(1, id="exit")])
    assert left.message == "model 'm': SystemExit: 3"
    [good] = instance.execute([asked(1)])
    assert isinstance(good, InferResponse)


def test_outputs_that_find_no_room_are_told(started):
    instance = started()
    [answer] = instance.execute([asked(1, size=SIZE // 8, outputs=("Y", "Z"))])
    assert isinstance(answer, BackendFailed)
    assert "too large" in answer.message
    assert isinstance(instance.execute([asked(1)])[0], InferResponse)


def test_a_task_may_tell_something_instead(started):
    assert started("tell") == "M"


@pytest.mark.parametrize(
    ("task", "told"),
    [("refuse", "model 'm': there is no such file"), ("explode", "model 'm': .*no driver")],
)
def test_what_cannot_be_opened_is_told(started, task, told):
    with pytest.raises(BackendFailed, match=f"^{told}"):
        started(task)


@pytest.mark.parametrize("verbose", [False, True])
def test_the_traceback_of_a_failed_load_is_printed_only_if_verbose(started, capsys, verbose):
    with pytest.raises(BackendFailed):
        started("explode", verbose=verbose)
    assert ("Traceback" in capsys.readouterr().err) == verbose


def test_short_executions_are_sent_ahead_and_come_back_in_their_order(started):
    instance = started(ahead=4)
    outcomes = []
    instance.begin([asked(0)], outcomes.append)
    assert not instance.is_free  # nothing is known of how long it takes
    instance._read_until(lambda: bool(outcomes))
    instance.ahead.room = 4  # whatever it took here
    for value in (1, 2, 3):
        assert instance.is_free
        instance.begin([asked(value)], outcomes.append)
    instance._link.flush()
    assert instance.running_count == 3
    instance._read_until(lambda: len(outcomes) == 4)
    assert [answer.outputs[0].numpy().tolist() for [answer] in outcomes] == [[0], [2], [4], [6]]
    assert instance.running_count == 0


def test_what_is_sent_in_one_turn_of_the_event_loop_comes_together(started):
    instance = started(ahead=16)

    async def ask():
        loop = asyncio.get_running_loop()
        instance.attach(loop)
        instance.ahead.room = 16
        waits = [loop.create_future() for _ in range(9)]
        for value, done in enumerate(waits):
            instance.begin([asked(value)], done.set_result)
        assert len(instance._link._delayed) == 8  # the first has gone: somebody waited for it
        outcomes = await asyncio.wait_for(asyncio.gather(*waits), 30)
        loop.remove_reader(instance._link._socket)
        return outcomes

    outcomes = asyncio.run(ask())
    assert [answer.outputs[0].numpy().tolist() for [answer] in outcomes] == [
        [2 * value] for value in range(9)
    ]


@pytest.mark.parametrize(("took_ns", "room"), [(1000, 4), (AHEAD_NS // 3, 2), (AHEAD_NS, 1)])
def test_the_longer_executions_take_the_fewer_are_sent_ahead(started, took_ns, room):
    instance = started(ahead=4)
    instance.ahead.note_time(took_ns)
    assert instance.ahead.room == room


def test_all_that_was_sent_ahead_fails_with_the_process(started):
    instance = started(ahead=4)
    outcomes = []
    instance.ahead.room = 4
    instance.begin([asked(1)], outcomes.append)
    instance.begin([asked(2)], outcomes.append)
    instance._lose("the process has ended")
    assert [type(outcome).is_lost for outcome in outcomes] == [True, True]
    assert all(isinstance(outcome, InferdError) for outcome in outcomes)
