"""ModelStreamInfer: many requests and answers on one stream (Triton, decoupled models)."""

import struct
from typing import Any

import grpc
import pytest
from conformance.bodies import OUTPUT0_BYTES
from conformance.points import point
from conformance.rpc import Rpc, raw_ok, repeated, set_parameters

Code = grpc.StatusCode
EMPTY_FINAL = {"triton_enable_empty_final_response": ("bool_param", True)}


def ids(answers: list[Any]) -> list[str]:
    return [answer.infer_response.id for answer in answers]


def numbers(answers: list[Any]) -> list[int]:
    """Return what model repeat said, OUT of each answer."""
    assert not any(answer.error_message for answer in answers), answers
    raw = [answer.infer_response.raw_output_contents[0] for answer in answers]
    return [struct.unpack("<i", one)[0] for one in raw]


def is_final(answer: Any) -> bool:
    return answer.infer_response.parameters["triton_final_response"].bool_param


@point(93, "MUST", "ModelStreamInfer, two requests: two answers in order, the stream ends OK")
def test_two_requests_have_two_answers(rpc: Rpc):
    answers = rpc.stream(raw_ok(id="a"), raw_ok(id="b"))
    assert ids(answers) == ["a", "b"]
    assert [answer.infer_response.raw_output_contents[0] for answer in answers] == [
        OUTPUT0_BYTES
    ] * 2


@point(
    94, "MUST", "ModelStreamInfer, a bad request then a good one: error_message, then the result"
)
def test_an_error_does_not_end_the_stream(rpc: Rpc):
    bad, good = rpc.stream(raw_ok(id="a", model_version="9"), raw_ok(id="b"))
    assert bad.error_message and bad.infer_response.id == "a"
    assert not good.error_message and good.infer_response.id == "b"


@point(95, "SHOULD", "a decoupled model, two answers, an empty last one asked for: three messages")
def test_an_empty_last_answer_comes_when_asked_for(rpc: Rpc):
    request = repeated(7, 8, id="r")
    set_parameters(request, **EMPTY_FINAL)
    *answers, last = rpc.stream(request)
    assert numbers(answers) == [7, 8] and not any(is_final(one) for one in answers)
    assert ids([*answers, last]) == ["r"] * 3
    assert is_final(last) and not last.infer_response.outputs


@point(96, "SHOULD", "ModelInfer on a decoupled model: UNIMPLEMENTED")
def test_one_answer_cannot_carry_a_decoupled_model(rpc: Rpc):
    rpc.check_refused(repeated(7), Code.UNIMPLEMENTED)


@point("S224", "SHOULD", "ModelStreamInfer: any number of answers of a decoupled model, or none")
def test_a_decoupled_model_answers_any_number_of_times(rpc: Rpc):
    answers = rpc.stream(repeated(id="none"), repeated(7, 8, 9, id="three"))
    assert (ids(answers), numbers(answers)) == (["three"] * 3, [7, 8, 9])


@point("S225", "SHOULD", "ModelStreamInfer without requests: ends OK")
def test_a_stream_without_requests_ends(rpc: Rpc):
    assert rpc.stream() == []


@point("S226", "SHOULD", "ModelStreamInfer: triton_final_response is true on a model's one answer")
def test_the_one_answer_is_the_last(rpc: Rpc):
    [answer] = rpc.stream(raw_ok())
    assert is_final(answer)


@point("S227", "SHOULD", "ModelStreamInfer: other names with the prefix triton_ are told of inside")
@pytest.mark.parametrize(
    "parameters",
    [{"triton_other": ("bool_param", True)}, {next(iter(EMPTY_FINAL)): ("string_param", "true")}],
)
def test_bad_parameters_are_told_of_inside(rpc: Rpc, parameters: dict):
    request = raw_ok(id="a")
    set_parameters(request, **parameters)
    bad, good = rpc.stream(request, raw_ok(id="b"))
    assert next(iter(parameters)) in bad.error_message
    assert not good.error_message


@point("S228", "SHOULD", "ModelStreamInfer: with triton_grpc_error the first error ends the stream")
def test_a_client_may_ask_for_a_status(rpc: Rpc):
    with pytest.raises(grpc.RpcError) as caught:
        rpc.stream(raw_ok(model_version="9"), metadata=(("triton_grpc_error", "true"),))
    assert caught.value.code() is Code.NOT_FOUND
