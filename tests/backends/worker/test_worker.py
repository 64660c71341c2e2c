"""The worker's own code, where a server with models cannot bring about what happens."""

import threading

import msgspec
import numpy as np
import pytest
from line_peer import PATIENCE_S, Peer, taken_count

from inferd.backends.worker.document import Answers, Logged
from inferd.backends.worker.link import Link
from inferd.backends.worker.message import ResultReader, describe_request, placed, places_of
from inferd.core.request import InferRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor as CoreTensor
from inferd_worker import packet
from inferd_worker.loop import serve
from inferd_worker.packet import Payload
from inferd_worker.pb_utils.response import InferenceResponse
from inferd_worker.pb_utils.tensor import Tensor
from inferd_worker.worker import Worker


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def worker(peer):
    return Worker(peer.other, peer.workers_arena, peer.line.received)


def said(peer):
    """Return kind and document of all that the worker has said."""
    told = []

    def receive(kind, document, *_):
        told.append((kind, document))

    link = Link(peer.socket, peer.arena, peer.received, receive, told.append)
    while link.read():
        pass
    return told


class Collected:
    """What a packet is made of, with the garbage collector in the midst of it: `say` is called."""

    def __init__(self, say):
        self._say = say

    def __iter__(self):
        self._say()
        return iter(())


def test_a_request_that_is_let_go_of_while_a_packet_is_sent_is_told_behind_it(peer, worker):
    def drop():
        worker.outbox.drop(7)
        worker.outbox.drop(8)

    worker.line.send(packet.LOG, Collected(drop))
    (first, _), *answers = said(peer)
    assert first == packet.LOG
    for number, (kind, document) in zip((7, 8), answers, strict=True):
        assert kind == packet.ANSWER
        [answer] = msgspec.json.decode(document, type=Answers).answers
        assert (answer.number, answer.is_final) == (number, True)
        assert "let go of the request without sending its final response" in answer.error[1]


def test_what_logs_when_it_is_collected_while_a_packet_is_sent_is_heard_behind_it(peer, worker):
    worker.line.send(packet.RELEASE, Collected(lambda: worker.calls.log(1, "gone")))
    (first, _), (kind, document) = said(peer)
    assert (first, kind) == (packet.RELEASE, packet.LOG)
    assert msgspec.json.decode(document, type=Logged).text == "gone"


class Same:
    """A model whose answer is what it was asked; it keeps what begins with a 1."""

    def __init__(self):
        self.kept = None

    def execute(self, requests):
        [tensor] = requests[0].inputs()
        array = tensor.as_numpy()
        if array[0]:
            self.kept = array
        return [InferenceResponse([Tensor("OUT", array)])]


SETTINGS = {
    "task": "serve",
    "file": "model.py",
    "code_folders": ["", ""],
    "version_folder": "",
    "args": {"model_name": "m", "model_config": "{}"},
}


def results_of(peer, worker, *inputs):
    """Return the document of the answer to each of `inputs`, and its bytes as the server reads."""
    told = []

    def receive(kind, document, data, _):
        if kind == packet.RESULT:
            result = msgspec.json.decode(document, type=Answers)
            loans = link.settle(result.released, ResultReader(result).blocks)
            [tensor] = placed(places_of(result.answers[0].outputs), data, loans)
            told.append((result.answers[0].outputs[0], tensor.numpy()))

    link = Link(peer.socket, peer.arena, peer.received, receive, told.append)
    thread = threading.Thread(target=worker.run, args=(serve,))
    thread.start()
    link.send(packet.START, [SETTINGS])
    for number, array in enumerate(inputs, 1):
        payload = Payload()
        request = InferRequest("m", inputs=[CoreTensor("IN", DataType.UINT8, array.shape, array)])
        asked = describe_request(request, payload)
        link.send(packet.EXECUTE, [[asked], []], payload, (number, 0, 0))
        while len(told) < number:
            assert link.wait(PATIENCE_S)
    link.send(packet.FINALIZE, [])
    thread.join()
    return told


def test_what_lies_where_the_server_reads_it_is_only_named_unless_the_model_has_kept_it(peer):
    large = np.zeros(50_000, np.uint8)
    kept = np.ones(50_000, np.uint8)
    small = np.zeros(5_000, np.uint8)
    worker = Worker(peer.other, peer.workers_arena, peer.line.received, lambda *_: Same)
    inputs = (large, kept, large, small, large)
    told = results_of(peer, worker, *inputs)
    for array, (_, got) in zip(inputs, told, strict=True):
        assert np.array_equal(got, array)
    assert [described.block >= 0 for described, _ in told] == [True, False, True, False, True]
    del told, got, worker
    assert taken_count(peer.workers_arena) == 1  # nobody has told the worker that it was read


class Slow:
    """A model that does not say whether it is ready before it is `told`."""

    asked_count = 0
    asked, told = threading.Event(), threading.Event()

    def is_ready(self):
        Slow.asked_count += 1
        self.asked.set()
        return self.told.wait(PATIENCE_S)

    def execute(self, requests):
        return [InferenceResponse() for _ in requests]


@pytest.mark.slow
def test_a_model_that_is_asked_while_it_is_asked_says_it_once(peer):
    worker = Worker(peer.other, peer.workers_arena, peer.line.received, lambda *_: Slow)
    kinds = []
    link = Link(
        peer.socket, peer.arena, peer.received, lambda kind, *_: kinds.append(kind), kinds.append
    )
    thread = threading.Thread(target=worker.run, args=(serve,))
    thread.start()

    def hear(kind):
        while kind not in kinds:
            assert link.wait(PATIENCE_S)

    link.send(packet.START, [SETTINGS])
    hear(packet.READY)
    link.send(packet.ASK, [])
    assert Slow.asked.wait(PATIENCE_S)
    link.send(packet.ASK, [])
    asked = describe_request(InferRequest("m"), Payload())
    link.send(packet.EXECUTE, [[asked], []], None, (1, 0, 0))
    hear(packet.RESULT)
    Slow.told.set()
    hear(packet.SAID)
    link.send(packet.FINALIZE, [])
    thread.join()
    assert Slow.asked_count == 1
    assert kinds.count(packet.SAID) == 1
