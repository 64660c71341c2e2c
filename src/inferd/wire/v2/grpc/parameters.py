"""InferParameter: parameter values of V2 gRPC messages, and the names the protocol reserves."""

from typing import Any

from inferd.core.request import InferRequest, Sequence
from inferd.errors import InvalidRequest
from inferd.tensor.tensor import Parameter, Parameters
from inferd.wire.json.document import JsonObject

EMPTY_FINAL = "triton_enable_empty_final_response"
"""The only name with the prefix 'triton_' that a client may set (Triton, decoupled models)."""

_BOOL, _INT, _TEXT, _UINT = "bool_param", "int64_param", "string_param", "uint64_param"

_KINDS = {
    "sequence_id": (_INT, _TEXT),
    "sequence_start": (_BOOL,),
    "sequence_end": (_BOOL,),
    "priority": (_INT, _UINT),
    "timeout": (_INT,),
    "binary_data_output": (_BOOL,),
    EMPTY_FINAL: (_BOOL,),
}
"""The reserved names and the kinds of value allowed for each, as Triton's clients send them."""


def decode_parameter(choice: Any) -> Parameter | None:
    """Return the value of InferParameter `choice`, None when it holds none."""
    kind = choice.WhichOneof("parameter_choice")
    if kind is None:
        return None
    value: Parameter = getattr(choice, kind)
    return value


def take_parameters(request: InferRequest, parameters: Any) -> None:
    """Put the parameters of a ModelInferRequest where they belong in `request`.

    Reserved names go into fields, the others into `request.parameters`. Raises InvalidRequest for
    a value of the wrong kind or range, a missing value, and other names that begin with 'triton_'.
    """
    reserved: JsonObject = {}
    custom: Parameters = {}
    for name, choice in parameters.items():
        value = decode_parameter(choice)
        if name in _KINDS:
            _check_kind(name, choice.WhichOneof("parameter_choice"))
            reserved[name] = value
        elif name.startswith("triton_"):
            msg = f"parameter keys starting with 'triton_' are reserved for Triton usage: '{name}'"
            raise InvalidRequest(msg)
        elif value is None:
            raise InvalidRequest(
                f"invalid value type for '{name}' parameter, expected int64_param, bool_param, or "
                f"string_param, or one of double_param and uint64_param: it has no value"
            )
        else:
            custom[name] = value
    request.parameters = custom
    if reserved:
        _take_reserved(request, reserved)


def encode_parameters(into: Any, parameters: Parameters) -> None:
    """Put `parameters` into the message's map `into`.

    Integers are sent as int64_param if they fit, since every server reads that, else as
    uint64_param. Raises InvalidRequest for values that a message cannot hold: an integer of more
    than 64 bits, a text with half a surrogate pair.
    """
    for name, value in parameters.items():
        try:
            setattr(into[name], _kind_of(value), value)
        except ValueError as error:
            raise InvalidRequest(f"parameter {name!r} cannot be sent: {error}") from error


def encode_reserved(into: Any, request: InferRequest) -> None:
    """Put the fields of `request` that travel as reserved parameters into the map `into`."""
    if request.priority:
        # priority may need all 64 bits; int64_param has 63.
        into["priority"].uint64_param = request.priority
    if request.timeout_us:
        into["timeout"].int64_param = request.timeout_us
    if request.empty_final:
        into[EMPTY_FINAL].bool_param = True
    if request.sequence is not None:
        into["sequence_start"].bool_param = request.sequence.start
        into["sequence_end"].bool_param = request.sequence.end
        number = request.sequence.id
        if isinstance(number, int) and 2**63 <= number < 2**64:
            number -= 2**64  # no other kind is allowed: the same 64 bits, like C++ clients
        encode_parameters(into, {"sequence_id": number})


def _kind_of(value: Parameter) -> str:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        # Negative numbers too: int64_param is what every server reads.
        return _INT if value < 2**63 else _UINT
    return _TEXT if isinstance(value, str) else "double_param"


def _check_kind(name: str, kind: str | None) -> None:
    if kind not in _KINDS[name]:
        expected = " or ".join(_KINDS[name])
        raise InvalidRequest(
            f"invalid value type for '{name}' parameter, expected {expected}: "
            f"it has {kind or 'no value'}"
        )


def _take_reserved(request: InferRequest, reserved: JsonObject) -> None:
    for name in ("priority", "timeout"):
        value = reserved.get(name)
        if isinstance(value, int) and value < 0:
            raise InvalidRequest(f"invalid value for '{name}', expected value >= 0: it is {value}")
    request.priority = reserved.get("priority", 0)
    request.timeout_us = reserved.get("timeout", 0)
    request.binary_output = reserved.get("binary_data_output", request.binary_output)
    request.empty_final = reserved.get(EMPTY_FINAL, False)
    number = reserved.get("sequence_id") or 0
    start, end = reserved.get("sequence_start", False), reserved.get("sequence_end", False)
    # Also flags alone: a model that asks for sequences is to say that the id is missing.
    if number or start or end:
        # C++ clients, whose ids are uint64, put the same 64 bits into int64_param.
        is_wrapped = isinstance(number, int) and number < 0
        request.sequence = Sequence(number + 2**64 if is_wrapped else number, start, end)
