"""Python models with iterative sequences: they give back requests that are not done."""

import queue
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton
from serving import HEAD, ONE_CONFIG
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60
ROUNDS = """
max_batch_size: 8
sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 8 } }
"""
DECOUPLED = ROUNDS + "model_transaction_policy { decoupled: true }\n"
MODEL = (
    HEAD
    + """
RESCHEDULE = np.int32(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)

class TritonPythonModel:
    def initialize(self, args):
        self.left = {}
        self.rounds = {}

    def execute(self, requests):
        return [self.step(request) for request in requests]

    def step(self, request):
        id = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            self.left[id], self.rounds[id] = int(tensor.as_numpy()[0, 0]), 0
        self.left[id] -= 1
        self.rounds[id] += 1
        return self.answer(request, self.left[id], self.rounds[id])

    def answer(self, request, left, rounds):
        if left > 0:
            request.set_release_flags(RESCHEDULE)
            return None
        return self.response(rounds)

    def response(self, value):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[value]], np.int32))])
"""
)
STREAM = MODEL.replace(
    "return [self.step(request) for request in requests]",
    "for request in requests: self.step(request)",
).replace(
    """        if left > 0:
            request.set_release_flags(RESCHEDULE)
            return None
        return self.response(rounds)
""",
    """        sender = request.get_response_sender()
        for _ in range(rounds):  # in the first round one, in the second two, ...
            sender.send(self.response(rounds))
        if left > 0:
            request.set_release_flags(RESCHEDULE)
        else:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
)
STATEFUL = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            rounds, at = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0])
                for name in ("IN", "AT")
            )
            values = {"OUT": at, "NEXT": at + 1}
            tensors = [
                pb_utils.Tensor(name, np.array([[value]], np.int32))
                for name, value in values.items()
            ]
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse(tensors))
            if at + 1 < rounds:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def given(rounds):
    one = triton.InferInput("IN", [1, 1], "INT32")
    return one.set_data_from_numpy(np.array([[rounds]], np.int32))


def streamed(asked, *rounds):
    """Return what comes for requests that take so many rounds, by request; or the error."""
    answers = queue.Queue()
    got = {str(number): [] for number in range(len(rounds))}
    asked.grpc.start_stream(lambda result, error: answers.put((result, error)))
    for number, count in enumerate(rounds):
        asked.grpc.async_stream_infer(
            "m", [given(count)], request_id=str(number), enable_empty_final_response=True
        )
    missing = set(got)
    while missing:
        result, error = answers.get(timeout=PATIENCE_S)
        if error is not None:
            return error
        answer = result.get_response()
        if answer.outputs:
            got[answer.id].append(int(result.as_numpy("OUT")[0, 0]))
        if answer.parameters["triton_final_response"].bool_param:
            missing.discard(answer.id)
    asked.grpc.stop_stream()
    return list(got.values())


@pytest.mark.slow
def test_a_model_answers_when_it_is_done(serve):
    with serve(m=(MODEL, ROUNDS + ONE_CONFIG)) as asked:
        for over in ("http", "grpc"):
            assert asked.ask("m", over, IN=np.array([[3]], np.int32))["OUT"].tolist() == [[3]]
        got = {}

        def ask(count):
            got[count] = asked.ask("m", "grpc", IN=np.array([[count]], np.int32))["OUT"].tolist()

        threads = [threading.Thread(target=ask, args=(count,)) for count in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert got == {count: [[count]] for count in range(1, 9)}
        [row] = asked.server.engine.whole.statistics("m")
        assert (row.inference_count, row.inference_stats.fail.count) == (10, 0)
        assert 6 + 8 <= row.execution_count <= 6 + 36


@pytest.mark.slow
def test_a_decoupled_model_answers_in_each_round(serve):
    with serve(m=(STREAM, DECOUPLED + ONE_CONFIG)) as asked:
        assert streamed(asked, 1, 3, 2) == [[1], [1, 2, 2, 3, 3, 3], [1, 2, 2]]
        long = 12
        expected = [count for count in range(1, long + 1) for _ in range(count)]
        assert streamed(asked, long) == [expected]


@pytest.mark.slow
def test_a_decoupled_model_keeps_its_state_from_round_to_round(serve):
    state = """state { input_name: "AT" output_name: "NEXT" data_type: TYPE_INT32 dims: 1 }"""
    config = DECOUPLED.replace("oldest", state + " oldest")
    model = HEAD + STATEFUL
    with serve(m=(model, config + ONE_CONFIG)) as asked:
        assert streamed(asked, 3, 1, 2) == [[0, 1, 2], [0], [0, 1]]


@pytest.mark.slow
def test_a_model_that_fails_in_a_later_round_fails_the_request(serve):
    fails = MODEL.replace("self.left[id] -= 1", "self.left[id] -= 1 // (1 - self.rounds[id])")
    with (
        serve(m=(fails, ROUNDS + ONE_CONFIG)) as asked,
        pytest.raises(InferenceServerException, match="ZeroDivisionError"),
    ):
        asked.ask("m", IN=np.array([[2]], np.int32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "config", "text"),
    [
        ("", ROUNDS.replace("iterative_sequence: true", ""), "which needs iterative_sequence"),
        ("return self.response(1)", ROUNDS, "a response to a request that it asks to be resch"),
    ],
)
def test_what_a_model_may_not_do_is_told(serve, wrong, config, text):
    source = MODEL.replace("            return None\n", f"            {wrong or 'return None'}\n")
    with serve(m=(source, config + ONE_CONFIG)) as asked:
        with pytest.raises(InferenceServerException, match=text):
            asked.grpc.infer("m", [given(2)], sequence_id=5, sequence_start=True)
        answer = asked.grpc.infer("m", [given(1)], sequence_id=6, sequence_start=True)
        assert answer.as_numpy("OUT").tolist() == [[1]]
