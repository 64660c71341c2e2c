"""Models in Python whose configurations reshape: clients have `dims`, the model has `reshape`."""

import numpy as np
import pytest
import tritonclient.grpc
from serving import parameter

SEEN = """
    class TritonPythonModel:
        def execute(self, requests):
            answers = []
            for request in requests:
                array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                seen = np.array([array.shape], np.int64)
                answers.append(pb_utils.InferenceResponse(
                    [pb_utils.Tensor("OUT", array), pb_utils.Tensor("SEEN", seen)]))
            return answers
"""

DECOUPLED = """
    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                seen = np.array([array.shape], np.int64)
                answer = pb_utils.InferenceResponse(
                    [pb_utils.Tensor("OUT", array), pb_utils.Tensor("SEEN", seen)])
                request.get_response_sender().send(answer, flags=1)
"""

UNSHAPED = """
    class TritonPythonModel:
        def execute(self, requests):
            out = pb_utils.Tensor("OUT", np.ones((2, 1), np.int32))
            return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def config(dims, reshape, more="max_batch_size: 4"):
    """Return a configuration whose input and output IN and OUT are reshaped alike."""
    place = f"data_type: TYPE_INT32 dims: {dims} reshape {{ shape: {reshape} }}"
    return f"""
    input {{ name: "IN" {place} }}
    output {{ name: "OUT" {place} }}
    output {{ name: "SEEN" data_type: TYPE_INT64 dims: -1 }}
    {more}
    """


@pytest.mark.slow
@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize("process", ["worker", "server"])
def test_a_scalar_has_no_dim_but_the_batch(serve, over, process):
    more = "max_batch_size: 4 dynamic_batching {} " + parameter("inferd_process", process)
    with serve(m=(SEEN, config([1], [], more))) as asked:
        got = asked.ask("m", over, IN=np.arange(3, dtype=np.int32).reshape(3, 1))
        assert got["SEEN"].tolist() == [[3]]
        assert got["OUT"].tolist() == [[0], [1], [2]]


@pytest.mark.slow
@pytest.mark.parametrize("more", ["max_batch_size: 0", "max_batch_size: 2"])
def test_variable_dims_keep_their_sizes(serve, more):
    lead = (2,) if more.endswith("2") else ()
    with serve(m=(SEEN, config([2, -1, 3], [1, 2, -1, 3, 1], more))) as asked:
        array = np.arange(np.prod((*lead, 2, 4, 3)), dtype=np.int32).reshape(*lead, 2, 4, 3)
        got = asked.ask("m", IN=array)
        assert got["SEEN"].tolist() == [[*lead, 1, 2, 4, 3, 1]]
        assert np.array_equal(got["OUT"], array)


@pytest.mark.slow
def test_answers_of_a_decoupled_model_are_reshaped(serve):
    more = "model_transaction_policy { decoupled: true }"
    with serve(m=(DECOUPLED, config([2, 2], [4], more))) as asked:
        [result] = asked.stream("m", IN=np.arange(4, dtype=np.int32).reshape(2, 2))
        assert isinstance(result, tritonclient.grpc.InferResult)
        assert result.as_numpy("SEEN").tolist() == [[4]]
        assert result.as_numpy("OUT").tolist() == [[0, 1], [2, 3]]


@pytest.mark.slow
def test_an_output_of_another_shape_is_passed_on(serve):
    with serve(m=(UNSHAPED, config([1], []))) as asked:
        got = asked.ask("m", IN=np.ones((2, 1), np.int32))
        assert got["OUT"].shape == (2, 1)
