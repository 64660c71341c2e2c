"""Answers that no worker sends: changed at random, from a seed that replays."""

import random
from math import prod

import pytest
from line_peer import packed, result
from scene import READY, begun, played, until

from inferd.core.request import InferResponse
from inferd.errors import InferdError
from inferd_worker import packet

SEED = 26
COUNT = 600
FINE = [[], None, None, True, 1]
DATA = bytes(range(64))
ODD = (-1, 0, 1, 2**31, 2**62, 2**63 - 1, 2**64, 10**40, "", "X", None, True, 1e308, [], [[]], {})


def honest(number):
    """Return packets that a worker may send while it executes batch `number`."""
    outputs = [["X", "INT32", [2, 8], 0, 64], ["Y", "BYTES", [1], 0, 8]]
    return [
        [packet.RESULT, [[], [[0, outputs, None, {"a": 1}, True, 1]]], DATA, (number, 1, 2)],
        [packet.RESULT, [[], [[0, None, [1, "it failed"], None, True, 1]]], b"", (number, 1, 2)],
        [packet.RESULT, [[], []], b"", (number, 1, 2)],
        [packet.ANSWER, [[], [[number, outputs, None, None, True, 1]]], DATA, (0, 0, 0)],
        [packet.LOG, [[], 1, "text"], b"", (0, 0, 0)],
        [packet.READY, [[], None, False, True], b"", (0, 0, 0)],
        [packet.SAID, [[], True], b"", (0, 0, 0)],
        [packet.RELEASE, [[0, 64]], b"", (0, 0, 0)],
        [packet.METRIC, [[], 1, "set", 1.0], b"", (0, 0, 0)],
        [packet.COMMAND, [[], "verb", []], b"", (7, 0, 0)],
        [packet.HANG_UP, [[]], b"", (7, 0, 0)],
    ]


def spoilt(chance, document):
    """Return `document` with one of its parts replaced."""
    if isinstance(document, list) and document and chance.random() < 0.8:
        at = chance.randrange(len(document))
        return [*document[:at], spoilt(chance, document[at]), *document[at + 1 :]]
    return chance.choice(ODD)


def garbled(chance, number):
    """Return a datagram that is almost one of a worker."""
    kind, document, data, numbers = chance.choice(honest(number))
    if chance.random() < 0.5:
        document = spoilt(chance, document)
    whole = bytearray(packed(kind, document, data, numbers=numbers))
    for _ in range(chance.choice((0, 1, 1, 4))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    if chance.random() < 0.2:
        del whole[chance.randrange(len(whole)) :]
    return bytes(whole) or b"\0"


@pytest.mark.slow
def test_no_answer_however_garbled_harms_another_request(scene):
    chance = random.Random(SEED)
    one = scene(READY)
    one.instance.start()
    counts = dict.fromkeys(("answered", "failed", "lost"), 0)

    async def play():
        for _ in range(COUNT):
            outcomes, number = begun(one, "a")
            one.peer.say(garbled(chance, number))
            one.peer.say(result(number, [[number, *FINE]]))
            one.peer.say(packed(packet.ANSWER, [[], [[number, *FINE]]]))  # execute() may be over
            await until(lambda outcomes=outcomes: outcomes)
            counts[check(outcomes)] += 1
            await until(lambda: one.instance.is_free)
            outcomes, number = begun(one, "next")
            one.peer.say(result(number, [[number, [["Z", "INT32", [16], 0, 64]], *FINE[1:]]], DATA))
            await until(lambda outcomes=outcomes: outcomes)
            [[answer]] = outcomes
            assert answer.id == "next"
            assert bytes(answer.outputs[0].view()) == DATA

    played(play, one)
    replaced_count = len(one.processes) - 1
    print(f"garbled answers: {counts} of {COUNT}, {replaced_count} processes replaced")  # noqa: T201
    assert min(counts.values()) > 0


def check(outcomes):
    """Return what became of a request; an answer to it is whole."""
    [outcome] = outcomes
    if isinstance(outcome, InferdError):
        assert outcome.is_lost
        return "lost"
    [answer] = outcome
    if isinstance(answer, InferdError):
        return "failed"
    assert isinstance(answer, InferResponse)
    assert answer.id == "a"
    for tensor in answer.outputs:
        size = tensor.datatype.size_bytes
        assert not size or len(tensor.view()) == size * prod(tensor.shape)
    return "answered"


def test_a_shape_without_end_is_not_multiplied(scene):
    one = scene(READY)
    one.instance.start()

    async def play():
        outcomes, number = begun(one, "a")
        endless = ["X", "INT32", [2**62] * 3000, 0, 0]
        one.peer.say(result(number, [[number, [endless], *FINE[1:]]]))
        await until(lambda: outcomes)
        assert outcomes[0].is_lost

    played(play, one)
