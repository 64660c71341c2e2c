"""The JSON schema of the inference request, run as a schema: what it allows is accepted.

Bodies are generated for the model `all`, and each is checked against the schema first. The schema
allows more than the protocol's text; those bodies are refused for a reason this file names.
"""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conformance.bodies import OUT_OF_RANGE, one, prefixed
from conformance.checks import check_ok, check_refused
from conformance.points import point
from conformance.rest import Rest
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEMA = json.loads((Path(__file__).parent.parent / "schema/inference_request.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FEW = settings(max_examples=60, deadline=None, database=None, derandomize=True)
MEANT = ("binary_data", "classification", "shared_memory", "sequence_", "triton_")
"""How the parameters start that mean something; the others are the client's own."""

own_names = st.text(max_size=8).filter(
    lambda name: not name.startswith(MEANT) and name not in ("priority", "timeout", "headers")
)
scalars = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
anything = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "FP16": st.floats(width=16, allow_nan=False, allow_infinity=False),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "FP64": st.floats(allow_nan=False, allow_infinity=False),
    "BYTES": st.text(max_size=6),
    "STRING": st.text(max_size=6),
    **{name: st.integers(low + 1, high - 1) for name, (low, high) in OUT_OF_RANGE.items()},
}
CODES = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b",
    "INT16": "h", "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
BASE64 = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
assert set(ELEMENTS) == set(SCHEMA["$defs"]["TensorDatatype"]["enum"])


def wire_bytes(datatype: str, data: list[Any]) -> bytes:
    if datatype in ("BYTES", "STRING"):
        return prefixed(*[text.encode() for text in data])
    return struct.pack(f"<{len(data)}{CODES[datatype]}", *data)


@st.composite
def tensors(draw: st.DrawFn, datatype: str) -> tuple[dict[str, Any], list[Any]]:
    """Return one input of model all, and its elements."""
    data = draw(st.lists(ELEMENTS[datatype], max_size=6))
    form = draw(st.sampled_from(["flat", "grouped", "base64"]))
    sent: Any = data
    if form == "grouped":
        cut = draw(st.integers(0, len(data)))
        sent = [data[:cut], [data[cut:]]]
    if form == "base64":
        sent = base64.b64encode(wire_bytes(datatype, data)).decode()
    words = form == "base64" and datatype in ("BYTES", "STRING")
    open_shape = bool(data) and not words and draw(st.booleans())
    tensor = one(datatype, sent, [-1] if open_shape else [len(data)])["inputs"][0]
    if draw(st.booleans()):
        tensor["parameters"] = draw(st.dictionaries(own_names, anything, max_size=2))
    return tensor, data


@st.composite
def requests(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return a body, and the elements each output must have."""
    names = draw(
        st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=1, max_size=4, unique=True).filter(
            lambda chosen: not {"BYTES", "STRING"} <= set(chosen)
        )
    )
    drawn = [draw(tensors(name)) for name in names]
    body: dict[str, Any] = {"inputs": [tensor for tensor, _ in drawn]}
    expected = {tensor["name"].replace("IN_", "OUT_"): data for tensor, data in drawn}
    if draw(st.booleans()):
        body["id"] = draw(st.text(max_size=8))
    if draw(st.booleans()):
        body["parameters"] = draw(st.dictionaries(own_names, scalars, max_size=3))
    if draw(st.booleans()):
        keep = draw(st.sampled_from(sorted(expected)))
        body["outputs"] = [{"name": keep, "parameters": draw(st.just({}))}]
        expected = {keep: expected[keep]}
    if draw(st.booleans()):
        extra = draw(st.dictionaries(st.text(max_size=6), anything, max_size=2))
        body = {**extra, **body} if not extra.keys() & SCHEMA["properties"].keys() else body
    return body, expected


@point("S135", "MUST", "JSON schema: a body it allows that fits the model is answered")
@FEW
@given(case=requests())
def test_what_the_schema_allows_is_answered(
    rest: Rest, case: tuple[dict[str, Any], dict[str, list[Any]]]
):
    body, expected = case
    VALIDATOR.validate(body)
    answer = check_ok(rest.infer("all", body))
    found = {tensor["name"]: tensor for tensor in answer["outputs"]}
    if "outputs" in body:
        assert found.keys() == expected.keys()
    for name, elements in expected.items():
        # Bytes, not numbers: the shortest text of a float need not be its double.
        datatype = found[name]["datatype"]
        assert wire_bytes(datatype, found[name]["data"]) == wire_bytes(datatype, elements)
    assert answer.get("id", "") == body.get("id", "")


REFUSED: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "a request parameter is a string, number or boolean (V2 REST, Parameters)": st.builds(
        lambda name, value: one("INT8", [1], parameters={name: value}),
        own_names,
        st.lists(anything, max_size=2) | st.dictionaries(st.text(max_size=4), anything, max_size=2),
    ),
    "parameters that start with triton_ are reserved (Triton)": st.builds(
        lambda name, value: one("INT8", [1], parameters={f"triton_{name}": value}),
        st.text(max_size=4),
        scalars,
    ),
    "at most one dim is worked out": st.builds(
        lambda data: one("INT8", data, [-1, -1]), st.lists(ELEMENTS["INT8"], max_size=4)
    ),
    "other dims are unsigned (V2 REST, Request Input)": st.builds(
        lambda data, dim: one("INT8", data, [dim]),
        st.lists(ELEMENTS["INT8"], max_size=4),
        st.integers(-(2**70), -2),
    ),
    "shape and data have one number of elements (V2 REST, Tensor Data)": st.builds(
        lambda data, more: one("INT8", data, [len(data) + more]),
        st.lists(ELEMENTS["INT8"], max_size=4),
        st.integers(1, 2**70),
    ),
    "a string in data is base64": st.builds(
        lambda text: one("INT8", text, [1]),
        st.text(min_size=1).filter(lambda text: not set(text) <= set("+/=") | BASE64),
    ),
    "elements have their datatype's JSON type": st.builds(
        lambda value: one("INT8", [value]),
        st.text(max_size=4) | st.booleans() | st.none() | st.just({}) | st.just(0.5),
    ),
    "integers do not wrap": st.builds(
        lambda value: one("INT8", [value]),
        st.integers(-(2**70), 2**70).filter(lambda n: not -128 <= n <= 127),
    ),
    "an input comes once": st.builds(
        lambda data: {"inputs": one("INT8", data)["inputs"] * 2},
        st.lists(ELEMENTS["INT8"], max_size=2),
    ),
    "an input is one of the model's": st.builds(
        lambda name: {"inputs": [{**one("INT8", [1])["inputs"][0], "name": name}]},
        st.text(max_size=8).filter(lambda name: not name.startswith("IN_")),
    ),
    "a datatype is the model's": st.builds(
        lambda datatype: {"inputs": [{**one("INT8", [1])["inputs"][0], "datatype": datatype}]},
        st.sampled_from(sorted(set(ELEMENTS) - {"INT8"})),
    ),
    "an output is one of the model's": st.builds(
        lambda name: one("INT8", [1], outputs=[{"name": name}]),
        st.text(max_size=8).filter(lambda name: not name.startswith("OUT_")),
    ),
}
"""Why a body the schema allows is refused -> such bodies."""


@point("S136", "MUST", "JSON schema: what it allows beyond the protocol's text is refused with 400")
@pytest.mark.parametrize("reason", REFUSED)
@settings(FEW, max_examples=15)
@given(draw=st.data())
def test_what_only_the_schema_allows_is_refused(rest: Rest, reason: str, draw: st.DataObject):
    body = draw.draw(REFUSED[reason])
    VALIDATOR.validate(body)
    check_refused(rest.infer("all", body))


WRONG_BY_SCHEMA: dict[str, Any] = {
    "inputs are required": {"id": "1"},
    "inputs are an array": {"inputs": {}},
    "an id is a string": one("INT8", [1], id=1),
    "parameters are an object": one("INT8", [1], parameters=[]),
    "outputs are an array": one("INT8", [1], outputs="OUT_INT8"),
    "an output has a name": one("INT8", [1], outputs=[{}]),
    "a shape is of integers": one("INT8", [1], [1.5]),
    "a datatype is one of the list": one("INT4", [1]),
    "data are an array or a string": one("INT8", {}, [1]),
}


@point("S137", "MUST", "JSON schema: what it forbids is refused with 400")
@pytest.mark.parametrize("reason", WRONG_BY_SCHEMA)
def test_what_the_schema_forbids_is_refused(rest: Rest, reason: str):
    body = WRONG_BY_SCHEMA[reason]
    assert not VALIDATOR.is_valid(body)
    check_refused(rest.infer("all", body))
