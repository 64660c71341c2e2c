"""Parameters of ModelInferRequest: every kind, and the reserved names with their types."""

import pytest
from fields import with_fields
from tritonclient.grpc import service_pb2 as pb

from inferd.core.request import InferRequest, Sequence
from inferd.errors import InvalidRequest
from inferd.wire.v2.grpc.codec import decode_infer_request
from inferd.wire.v2.grpc.parameters import EMPTY_FINAL, encode_parameters, encode_reserved


def decoded(**parameters):
    choices = {name: pb.InferParameter(**choice) for name, choice in parameters.items()}
    data = pb.ModelInferRequest(parameters=choices).SerializeToString()
    return decode_infer_request(data)


def refusal(**parameters):
    with pytest.raises(InvalidRequest) as caught:
        decoded(**parameters)
    return caught.value.message


def test_all_five_kinds_are_read():
    request = decoded(
        b={"bool_param": False},
        i={"int64_param": -1},
        s={"string_param": "x"},
        d={"double_param": 0.5},
        u={"uint64_param": 2**64 - 1},
    )
    assert request.parameters == {"b": False, "i": -1, "s": "x", "d": 0.5, "u": 2**64 - 1}


def test_a_parameter_without_a_value_is_invalid():
    assert "invalid value type for 'x' parameter" in refusal(x={})


def test_names_with_tritons_prefix_are_reserved():
    assert "'triton_x'" in refusal(triton_x={"int64_param": 1})


def test_the_headers_parameter_is_an_ordinary_one():
    assert decoded(headers={"string_param": "h"}).parameters == {"headers": "h"}


def test_the_empty_final_answer_is_a_field():
    request = decoded(**{EMPTY_FINAL: {"bool_param": True}})
    assert request.empty_final and request.parameters == {}
    assert "bool_param" in refusal(**{EMPTY_FINAL: {"string_param": "true"}})


@pytest.mark.parametrize("kind", ["int64_param", "uint64_param"])
def test_priority_is_an_unsigned_number(kind):
    assert decoded(priority={kind: 3}).priority == 3


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("priority", {"int64_param": -1}),
        ("priority", {"string_param": "1"}),
        ("timeout", {"int64_param": -1}),
        ("timeout", {"string_param": "1"}),
        ("timeout", {"uint64_param": 1}),
        ("sequence_id", {"uint64_param": 1}),
        ("sequence_id", {"double_param": 1.0}),
        ("sequence_start", {"int64_param": 1}),
        ("sequence_end", {"string_param": "true"}),
        ("binary_data_output", {"int64_param": 1}),
        ("priority", {}),
    ],
)
def test_reserved_names_with_other_values_are_invalid(name, choice):
    assert f"'{name}'" in refusal(**{name: choice})


def test_timeout_is_in_microseconds():
    assert decoded(timeout={"int64_param": 250}).timeout_us == 250


@pytest.mark.parametrize(("kind", "value"), [("int64_param", 5), ("string_param", "five")])
def test_a_sequence_has_an_id_and_two_flags(kind, value):
    request = decoded(
        sequence_id={kind: value},
        sequence_start={"bool_param": True},
        sequence_end={"bool_param": False},
    )
    assert request.sequence == Sequence(value, start=True)
    assert request.parameters == {}


@pytest.mark.parametrize("number", [2**63, 2**64 - 5])
def test_an_id_beyond_int64_travels_as_the_same_64_bits(number):
    wrapped = {"int64_param": number - 2**64}
    assert decoded(sequence_id=wrapped).sequence == Sequence(number)
    message = pb.ModelInferRequest()
    encode_reserved(message.parameters, with_fields(InferRequest("m"), sequence=Sequence(number)))
    assert message.parameters["sequence_id"] == pb.InferParameter(**wrapped)


@pytest.mark.parametrize("choice", [{"int64_param": 0}, {"string_param": ""}])
def test_the_ids_zero_and_empty_mean_no_sequence(choice):
    assert decoded(sequence_id=choice, sequence_start={"bool_param": False}).sequence is None


@pytest.mark.parametrize("choice", [{}, {"sequence_id": {"string_param": ""}}])
def test_flags_are_retained_without_a_sequence(choice):
    request = decoded(**choice, sequence_start={"bool_param": True})
    assert request.sequence == Sequence(0, start=True)
    assert decoded(**choice, sequence_end={"bool_param": True}).sequence == Sequence(0, end=True)


@pytest.mark.parametrize("value", [True, False])
def test_binary_data_output_says_how_to_answer(value):
    assert decoded(binary_data_output={"bool_param": value}).binary_output is value


def test_a_request_without_inputs_is_answered_raw():
    assert decoded().binary_output


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool_param"),
        (0, "int64_param"),
        (-(2**63), "int64_param"),
        (2**63, "uint64_param"),
        ("", "string_param"),
        (0.0, "double_param"),
    ],
)
def test_a_value_is_written_in_its_kind_even_when_it_is_the_default(value, kind):
    message = pb.ModelInferRequest()
    encode_parameters(message.parameters, {"p": value})
    assert message.parameters["p"].WhichOneof("parameter_choice") == kind


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800"])
def test_a_value_no_message_can_hold_is_invalid(value):
    with pytest.raises(InvalidRequest, match="'p' cannot be sent"):
        encode_parameters(pb.ModelInferRequest().parameters, {"p": value})


def test_a_fresh_request_says_nothing():
    assert decode_infer_request(b"") == InferRequest("", binary_output=True)


def test_a_field_that_says_nothing_is_not_sent():
    message = pb.ModelInferRequest()
    encode_reserved(message.parameters, InferRequest("m"))
    assert not message.parameters
