"""Models in Python whose executions are so short that several requests are on their way to them."""

import os
import socket
import threading

import numpy as np
import pytest
import tritonclient.grpc
from serving import ONE_CONFIG, parameter

from inferd_worker import packet
from inferd_worker.arena import Arena, Received
from inferd_worker.worker import Worker

SIZE = 1 << 16
NUMBERS = """
    import os
    class TritonPythonModel:
        count = 0
        def execute(self, requests):
            assert len(requests) == 1
            value = requests[0].inputs()[0].as_numpy()
            if value[0] == 666 and not os.path.exists(FILE):
                open(FILE, "w").close()
                os.abort()
            self.count += 1
            both = np.array([value[0], self.count], np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", both)])]
"""


def asked_together(asked, values):
    """Ask for all `values` before any is answered; return results or errors by value."""
    answers, are_there = {}, threading.Event()

    def note(value):
        def take(result, error):
            answers[value] = error or result.as_numpy("OUT").tolist()
            if len(answers) == len(values):
                are_there.set()

        return take

    for value in values:
        given = tritonclient.grpc.InferInput("IN", [1], "INT32")
        given.set_data_from_numpy(np.array([value], np.int32))
        asked.grpc.async_infer("m", [given], note(value))
    assert are_there.wait(60)
    return answers


@pytest.mark.slow
def test_each_of_many_requests_is_executed_once_and_alone(serve):
    with serve(m=NUMBERS) as asked:
        answers = asked_together(asked, range(500))
        assert [answers[value][0] for value in range(500)] == list(range(500))
        assert sorted(count for _, count in answers.values()) == list(range(1, 501))


@pytest.mark.slow
@pytest.mark.parametrize("retries", [False, True])
def test_a_crash_costs_only_the_request_that_was_executed(serve, tmp_path, retries):
    source = f"    FILE = {str(tmp_path / 'done')!r}\n{NUMBERS}"
    config = ONE_CONFIG
    if retries:
        config += parameter("inferd_retry_lost_requests", "true")
    with serve(m=(source, config)) as asked:
        values = [*range(100), 666, *range(100, 200)]
        answers = asked_together(asked, values)
        told = answers.pop(666)
        if retries:
            assert told[0] == 666
        else:
            assert "was killed by signal 6 (SIGABRT) while the request was in it" in str(told)
        assert [answers[value][0] for value in range(200)] == list(range(200))


def test_what_is_cancelled_before_its_turn_is_cancelled_when_it_comes():
    request = ["", [], None, None, None]
    fd = os.memfd_create("test-inferd-ahead")
    os.ftruncate(fd, SIZE)
    ours, theirs = socket.socketpair()
    with ours, theirs, open(fd, "rb"):
        memory = Arena(fd, SIZE, most=0), Received(fd, SIZE, 0, writable=True)
        worker = Worker(theirs, *memory)
        for number in (1, 2, 3):
            worker._receive(packet.EXECUTE, [[], [request], []], None, (number, 0, 0))
        worker._receive(packet.CANCEL, [[], [2]], None, packet.NO_NUMBERS)
        arrived = [worker.take()[1][0] for _ in range(3)]
        assert [one.is_cancelled for one in arrived] == [False, True, False]
        for one in arrived:
            one.is_closed = True
