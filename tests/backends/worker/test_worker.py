"""The worker's own code, where a server with models cannot bring about what happens."""

import msgspec
import pytest
from line_peer import Peer

from inferd.backends.worker.bootstrap.inferd_worker import packet
from inferd.backends.worker.bootstrap.inferd_worker.worker import Worker
from inferd.backends.worker.link import Link
from inferd.backends.worker.message import Answers, Logged


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def worker(peer):
    return Worker(peer.other, peer.workers_arena, peer.line._received)


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
        worker.drop(7)
        worker.drop(8)

    worker.line.send(packet.LOG, Collected(drop))
    (first, _), *answers = said(peer)
    assert first == packet.LOG
    for number, (kind, document) in zip((7, 8), answers, strict=True):
        assert kind == packet.ANSWER
        [answer] = msgspec.json.decode(document, type=Answers).answers
        assert (answer.number, answer.is_final) == (number, True)
        assert "let go of the request without sending its final response" in answer.error[1]


def test_what_logs_when_it_is_collected_while_a_packet_is_sent_is_heard_behind_it(peer, worker):
    worker.line.send(packet.RELEASE, Collected(lambda: worker.log(1, "gone")))
    (first, _), (kind, document) = said(peer)
    assert (first, kind) == (packet.RELEASE, packet.LOG)
    assert msgspec.json.decode(document, type=Logged).text == "gone"
