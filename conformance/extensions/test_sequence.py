"""The sequence extension: requests that belong together, and what the model is told of them."""

from typing import Any

import pytest
from conformance.checks import check_refused, values
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc, pb, set_parameters, tensor


def step(**parameters: Any) -> dict[str, Any]:
    """Return a request to a sequence model."""
    given = {"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [7]}
    return {"inputs": [given], "parameters": parameters}


def rpc_step(model: str, **parameters: tuple[str, Any]) -> pb.ModelInferRequest:
    """Return the same over gRPC."""
    request = pb.ModelInferRequest(model_name=model)
    tensor(request, "INPUT", "INT32", [1, 1]).contents.int_contents.append(7)
    set_parameters(request, **parameters)
    return request


@point(112, "SHOULD", "a sequence model without an id: 400")
@pytest.mark.parametrize("parameters", [{}, {"sequence_id": 0}, {"sequence_id": ""}])
def test_a_sequence_model_needs_an_id(rest: Rest, parameters: dict):
    check_refused(rest.infer("seq", step(sequence_start=True, **parameters)))


@point(113, "SHOULD", "the first request of sequence 5: the model's START control is 1")
def test_a_model_is_told_of_the_start(rest: Rest):
    body = step(sequence_id=5, sequence_start=True)
    for _ in range(2):  # again: a second start is taken, too
        response = rest.infer("seq", body)
        assert values(response, "STARTED") == [1]
        assert values(response, "ID_SEEN") == [5]


@point(114, "SHOULD", "an id that is a string, where the model takes strings: 200")
def test_an_id_may_be_a_string(rest: Rest):
    response = rest.infer("seq_text", step(sequence_id="abc", sequence_start=True))
    assert values(response, "ID_SEEN") == ["abc"]


@point("S229", "SHOULD", "a sequence over gRPC: id and start reach the model")
def test_a_model_is_told_of_the_start_over_grpc(rpc: Rpc):
    start = ("bool_param", True)
    request = rpc_step("seq", sequence_id=("int64_param", 5), sequence_start=start)
    response = rpc.infer(request)
    assert [list(one.shape) for one in response.outputs] == [[1, 1]] * 3
    request = rpc_step("seq_text", sequence_id=("string_param", "abc"), sequence_start=start)
    assert rpc.infer(request).raw_output_contents[2] == b"\3\0\0\0abc"
