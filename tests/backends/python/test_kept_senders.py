"""Response senders that a model keeps: they work after execute, from any thread, until the end."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as triton
from serving import ONE_CONFIG, parameter

PATIENCE_S = 60
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
PLACES = ["worker", "server"]
# A request of 0 is kept. One of n has all that are kept answered, n times each, by a thread that
# works while others are executed; it is itself told how many those are.
KEEPS = """
import threading

class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        for request in requests:
            count = int(request.inputs()[0].as_numpy()[0])
            sender = request.get_response_sender()
            if not count:
                self.kept.append(sender)
                continue
            kept, self.kept = self.kept, []
            threading.Thread(target=self.answer, args=(kept, count)).start()
            self.send(sender, len(kept), is_last=True)

    def answer(self, kept, count):
        for turn in range(count):
            for place, sender in enumerate(kept):
                self.send(sender, 1000 * place + turn, is_last=turn == count - 1)

    def send(self, sender, number, is_last):
        out = pb_utils.Tensor("OUT", np.array([number], np.int32))
        sender.send(pb_utils.InferenceResponse([out]), flags=1 if is_last else 0)
"""
# As many other requests are executed before the thread goes on, which has a model called by then.
CALLS = """
import threading

class TritonPythonModel:
    def initialize(self, args):
        self.count = 0
        self.is_enough = threading.Event()

    def execute(self, requests):
        for request in requests:
            self.count += 1
            if self.count == 3:
                self.is_enough.set()
            arguments = (request.get_response_sender(), request.inputs()[0])
            threading.Thread(target=self.answer, args=arguments).start()

    def answer(self, sender, tensor):
        self.is_enough.wait()
        call = pb_utils.InferenceRequest(
            model_name="double", inputs=[tensor], requested_output_names=["OUT"])
        sender.send(call.exec(), flags=1)
"""
# A request of [a, b, ...] has an answer of a elements, one of b, and so on.
SIZES = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for count in request.inputs()[0].as_numpy():
                out = pb_utils.Tensor("OUT", np.zeros(count, np.int32))
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=1)
"""
DOUBLE = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor("OUT", one.inputs()[0].as_numpy() * 2)]) for one in requests]
"""


class Stream:
    """A gRPC stream to the model "m"."""

    def __init__(self, asked):
        self._grpc = asked.grpc
        self._answers = queue.Queue()
        self._grpc.start_stream(lambda result, error: self._answers.put((result, error)))

    def ask(self, number, id):
        one = triton.InferInput("IN", [1], "INT32")
        one.set_data_from_numpy(np.array([number], np.int32))
        self._grpc.async_stream_infer("m", [one], request_id=id)

    def take(self, count):
        """Return so many answers, in their order, by the ids of their requests."""
        got = {}
        for _ in range(count):
            result, error = self._answers.get(timeout=PATIENCE_S)
            assert error is None, error
            got.setdefault(result.get_response().id, []).append(int(result.as_numpy("OUT")[0]))
        return got

    def close(self):
        self._grpc.stop_stream()
        assert self._answers.empty()


@pytest.mark.parametrize("place", PLACES)
def test_those_of_a_decoupled_model_answer_while_others_are_executed(serve, place):
    with serve(m=(KEEPS, ONE_CONFIG + DECOUPLED + parameter("inferd_process", place))) as asked:
        stream = Stream(asked)
        for id in "abc":
            stream.ask(0, id)
        stream.ask(50, "d")
        for id in "ef":
            stream.ask(0, id)
        stream.ask(1, "g")
        got = stream.take(154)
        stream.close()
    assert got == {
        "d": [3],
        **{id: [1000 * place + turn for turn in range(50)] for place, id in enumerate("abc")},
        "g": [2],
        "e": [0],
        "f": [1000],
    }


@pytest.mark.parametrize("place", PLACES)
def test_those_of_another_model_answer_while_others_are_executed(serve, place):
    with serve(m=(KEEPS, ONE_CONFIG + parameter("inferd_process", place))) as asked:
        stream = Stream(asked)
        for id in "abc":
            stream.ask(0, id)
        stream.ask(1, "d")
        got = stream.take(4)
        stream.close()
    assert got == {"a": [0], "b": [1000], "c": [2000], "d": [3]}


@pytest.mark.parametrize("more", ["", DECOUPLED])
@pytest.mark.parametrize("place", PLACES)
def test_threads_that_have_one_may_call_models(serve, place, more):
    config = ONE_CONFIG + parameter("inferd_process", place)
    with serve(m=(CALLS, config + more), double=DOUBLE) as asked:
        stream = Stream(asked)
        for number, id in enumerate("abc"):
            stream.ask(number, id)
        got = stream.take(3)
        stream.close()
    assert got == {"a": [0], "b": [2], "c": [4]}


@pytest.mark.parametrize("place", PLACES)
def test_answers_of_any_sizes_follow_one_another(serve, place):
    # In MiB at most 1.2: each takes up another part of the window of a stream.
    sizes = [1, 300_000, 1, 100_000, 180_000, 300_000, 5, 299_999, *range(20_000, 300_000, 17_000)]
    with serve(m=(SIZES, ONE_CONFIG + DECOUPLED + parameter("inferd_process", place))) as asked:
        answers = queue.Queue()
        asked.grpc.start_stream(lambda result, error: answers.put((result, error)))
        one = triton.InferInput("IN", [len(sizes)], "INT32")
        one.set_data_from_numpy(np.array(sizes, np.int32))
        asked.grpc.async_stream_infer("m", [one])
        try:
            got = [answers.get(timeout=PATIENCE_S) for _ in sizes]
        finally:
            asked.grpc.stop_stream(cancel_requests=True)
        assert [error for _, error in got] == [None] * len(sizes)
        assert [result.as_numpy("OUT").size for result, _ in got] == sizes
