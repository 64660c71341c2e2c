"""Python models with sequences: decoupled ones that answer after execute has returned."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as triton
from serving import ONE_CONFIG

PATIENCE_S = 60
DECOUPLED = "max_batch_size: 8\nmodel_transaction_policy { decoupled: true }\n" + ONE_CONFIG
STRATEGIES = ["direct {}", "oldest { max_candidate_sequences: 8 }"]
# Answers nobody before IN requests are there, each with how many have come before it.
GATHERS = """
class TritonPythonModel:
    def initialize(self, args):
        self.waiting = []
        self.count = 0

    def execute(self, requests):
        for request in requests:
            number = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0])
            self.waiting.append((request.get_response_sender(), self.count))
            self.count += 1
            if len(self.waiting) == number:
                self.answer()

    def answer(self):
        for sender, count in self.waiting:
            tensor = pb_utils.Tensor("OUT", np.array([[count]], np.int32))
            sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.waiting = []
"""


def given(number):
    one = triton.InferInput("IN", [1, 1], "INT32")
    return one.set_data_from_numpy(np.array([[number]], np.int32))


def streamed(asked, number, *sequences):
    """Ask once for each of `sequences`, ids and flags; return what came, by the place there."""
    answers = queue.Queue()
    asked.grpc.start_stream(lambda result, error: answers.put((result, error)))
    for place, (id, flags) in enumerate(sequences):
        asked.grpc.async_stream_infer(
            "m", [given(number)], request_id=str(place), sequence_id=id, **flags
        )
    got = {}
    for _ in sequences:
        result, error = answers.get(timeout=PATIENCE_S)
        assert error is None
        got[result.get_response().id] = int(result.as_numpy("OUT")[0, 0])
    asked.grpc.stop_stream()
    return [got[str(place)] for place in range(len(sequences))]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sequences_are_with_a_decoupled_model_at_the_same_time(serve, strategy):
    config = DECOUPLED + f"sequence_batching {{ {strategy} }}\n"
    start, end = {"sequence_start": True}, {"sequence_end": True}
    with serve(m=(GATHERS, config)) as asked:
        assert streamed(asked, 3, *((id, start) for id in (1, 2, 3))) == [0, 1, 2]
        # The second of sequence 1 waits until the first has its answer, with that of sequence 2.
        first, second, other, third = streamed(asked, 2, (1, {}), (1, {}), (2, {}), (3, {}))
        assert (first, other) == (3, 4)
        assert {second, third} == {5, 6}
        assert streamed(asked, 1, *((id, end) for id in (1, 2, 3))) == [7, 8, 9]
