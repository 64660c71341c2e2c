"""Parameters of a request: where those with a meaning go, and what is refused."""

from decimal import Decimal

import pytest
from fields import with_fields

from inferd.core.request import InferRequest, Sequence
from inferd.errors import InvalidRequest
from inferd.wire.v2.rest.parameters import reserved_parameters, scalars, set_parameters


def read(**parameters):
    request = InferRequest("m")
    set_parameters(request, parameters)
    return request


def refusal(**parameters):
    with pytest.raises(InvalidRequest) as caught:
        read(**parameters)
    return caught.value.message


def test_parameters_without_a_meaning_are_retained():
    retained = {"text": "a", "count": 3, "share": 0.5, "yes": True}
    assert read(**retained).parameters == retained


@pytest.mark.parametrize("key", ["triton_", "triton_x", "triton_final_response"])
def test_reserved_names_are_refused(key):
    message = refusal(**{key: 1})
    assert f"'{key}'" in message and "reserved" in message


def test_reserved_names_are_recognized_by_their_case():
    parameters = {"Triton_x": 1, "Priority": "a"}
    assert read(**parameters).parameters == parameters


@pytest.mark.parametrize("value", [True, False])
def test_one_name_with_the_reserved_prefix_may_be_set(value):
    request = read(triton_enable_empty_final_response=value)
    assert (request.empty_final, request.parameters) == (value, {})
    assert "true or false" in refusal(triton_enable_empty_final_response="x")


@pytest.mark.parametrize("value", [0, 1, 2**63, 2**64 - 1])
def test_priority_and_timeout_are_numbers_of_64_bits(value):
    request = read(priority=value, timeout=value)
    assert (request.priority, request.timeout_us, request.parameters) == (value, value, {})


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, 1.0, Decimal(1), "1", True, [], {}, "a" * 10**5])
@pytest.mark.parametrize("key", ["priority", "timeout"])
def test_other_priorities_and_timeouts_are_refused_by_name(key, value):
    message = refusal(**{key: value})
    assert f"'{key}'" in message and "2^64 - 1" in message and len(message) < 400


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sequence_id": 5}, Sequence(5)),
        ({"sequence_id": "s"}, Sequence("s")),
        ({"sequence_id": 2**64 - 1, "sequence_end": True}, Sequence(2**64 - 1, end=True)),
        ({"sequence_start": True, "sequence_id": 5}, Sequence(5, start=True)),
        (
            {"sequence_id": 5, "sequence_start": True, "sequence_end": False},
            Sequence(5, start=True),
        ),
        ({"sequence_id": 0, "sequence_start": True}, Sequence(0, start=True)),
        ({"sequence_id": "", "sequence_end": True}, Sequence(0, end=True)),
        ({"sequence_id": ""}, None),
        ({"sequence_id": 0, "sequence_start": False}, None),
        ({"sequence_start": True, "sequence_end": True}, Sequence(0, start=True, end=True)),
    ],
)
def test_a_sequence_has_an_id_that_is_not_zero(parameters, expected):
    request = read(**parameters)
    assert request.sequence == expected and request.parameters == {}


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, Decimal("1.5"), True, []])
def test_other_sequence_ids_are_refused(value):
    message = refusal(sequence_id=value)
    assert "'sequence_id'" in message and "string" in message


@pytest.mark.parametrize("key", ["sequence_start", "sequence_end", "binary_data_output"])
@pytest.mark.parametrize("value", [1, 0, "true", [], {}, 1.0, Decimal(1)])
def test_flags_are_true_or_false(key, value):
    message = refusal(**{key: value})
    assert f"'{key}'" in message and "true or false" in message


def test_binary_output_is_a_choice_for_all():
    assert read(binary_data_output=True).binary_output
    assert not read(binary_data_output=False).binary_output


def test_what_has_a_meaning_goes_back_into_its_parameter():
    request = with_fields(
        InferRequest("m"), priority=3, timeout_us=9, sequence=Sequence("s", start=True)
    )
    assert read(**reserved_parameters(request)) == request
    assert reserved_parameters(InferRequest("m")) == {}


def test_of_a_tensors_parameters_the_scalars_without_a_meaning_are_retained():
    given = {"a": 1, "b": [1], "c": None, "binary_data_size": 4, "shared_memory_region": "r"}
    assert scalars(given) == {"a": 1}
    assert scalars({"b": {}}) is None
