"""Each argument of each overload of an operator that has a rule of rows.

An argument that a rule does not look at, such as a dim with a name of its own in one overload, may
say where rows go.
"""

from itertools import product

import pytest
import torch

from inferd.backends.pytorch.rows.call import OF_ELEMENTS, AtenCall, Handle
from inferd.backends.pytorch.rows.follow import RULES, TorchFlow
from inferd.formats.onnx_graph import OnnxFile, OnnxGraph
from inferd.rows.flow import RowFlow
from inferd.rows.value import B, LostTensor, Mixed, RowTensor, Size, Unclear
from inferd.rows.verdict import RULES as ONNX_RULES

RANKS = range(1, 6)

REFUSED = {
    "bincount": {"minlength", "weights"},
    "einsum": {"a"},
    "histc": {"bins"},
    "masked_select": {"mask"},
    "_unique2": {"return_counts", "return_inverse"},
}
"""Arguments that rules do not look at: rows are not followed through these operators at all, or
not through the overload that has the argument."""

NEVER = {
    "gru.data", "index.list_Tensor", "len.Dict_Tensor", "lstm.data", "native_group_norm",
    "native_group_norm.out", "rnn_relu.data", "rnn_tanh.data", "sort.Tensor", "view.dtype",
    "view_copy.dtype", "view_copy.dtype_out",
}  # fmt: skip
"""Overloads that are never followed: for packed sequences, lists, other datatypes; and for images,
whose numbers must be those of the input."""

RANDOM = (
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randn",
    "randn_like", "randperm",
)  # fmt: skip

LISTS = {"output_padding", "path", "shifts"}
"""Arguments of several numbers, none of which is a dim, or its length before padding is added."""


def flow():
    return RowFlow(OnnxFile(OnnxGraph(), {"": 20}, {}), ONNX_RULES)


def overloads():
    """Yield the name of a rule, and the schema, for each overload that it may be called for."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if schema.name == f"aten::{name}_" or any(is_written(one) for one in schema.arguments):
            name = name.removesuffix("_")
        if space == "aten" and name in RULES and "Tensor" in str(schema):
            yield name, schema


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def tensor(rank, has_rows, axis=0):
    shape = [Size(4)] * rank
    if has_rows:
        shape[axis] = B
    return Handle(RowTensor(tuple(shape), axis if has_rows else None), is_integer=True)


def value_of(argument, rank, has_rows, is_given, flag, count):
    """Return what may be given for an argument, by its type."""
    kind = str(argument.type)
    if kind.startswith("Optional["):
        if not is_given:
            return None
        kind = kind.removeprefix("Optional[").removesuffix("]")
    if "Tensor" in kind:
        one = tensor(rank, has_rows, int(argument.name == "hx" and rank > 1))
        return [one] if kind.startswith("List") else one
    if kind.startswith("List[int]"):
        return [4 if argument.name in ("size", "shape", "sizes") else 1] * count
    texts = {"equation": "ab->ab", "padding": "same"}
    by_kind = {"int": 1, "number": 1, "float": 0.0, "bool": flag, "List[float]": [1.0] * count}
    return texts.get(argument.name, "zeros") if kind == "str" else by_kind.get(kind)


def calls(name, schema):
    """Yield calls of an overload, with arguments as different as they may be."""
    kinds = [str(one.type) for one in schema.arguments]
    tensors = [one.name for one in schema.arguments if "Tensor" in str(one.type)]
    given = (False, True) if any(kind.startswith("Optional") for kind in kinds) else (False,)
    flags = (False, True) if "bool" in kinds else (False,)
    counts = (1, 2, 3, 4) if any("List[" in kind for kind in kinds) else (1,)
    rows = ([], tensors[:1], tensors[-1:], ["input", "hx"], ["query", "key", "value"])
    for rank, is_given, flag, count, having in product(RANKS, given, flags, counts, rows):
        made = {
            one.name: value_of(one, rank, one.name in having, is_given, flag, count)
            for one in schema.arguments
            if not one.is_out
        }
        yield AtenCall(flow(), name, made)


def followed(name, schema):
    """Return what a rule does not look at, for each call through which it follows rows."""
    found = []
    for call in calls(name, schema):
        try:
            RULES[name](call)
        except (Mixed, Unclear, LookupError, TypeError, ValueError, ArithmeticError):
            continue
        given = {one for one, value in call.arguments.items() if value is not None}
        found.append(given - call._read)
    return found


@pytest.fixture(scope="module")
def left_out():
    """Return the arguments that are left out in some call, by overload; none if never followed."""
    made = {}
    for name, schema in overloads():
        found = followed(name, schema)
        made[str(schema)] = (
            name,
            schema,
            set().union(*found) if found else None,
        )
    return made


def test_rules_look_at_each_argument_that_is_not_of_elements_alone(left_out):
    ignored = {}
    for name, _, left in left_out.values():
        if more := (left or set()) - OF_ELEMENTS:
            ignored.setdefault(name, set()).update(more)
    assert ignored == REFUSED


def test_arguments_that_are_left_out_are_no_tensors_and_no_dims(left_out):
    odd = set()
    for name, schema, left in left_out.values():
        for one in schema.arguments:
            is_left = one.name in (left or ()) and one.name in OF_ELEMENTS
            is_list = "List" in str(one.type) and one.name not in LISTS
            is_place = "Tensor" in str(one.type) or "dim" in one.name or "axis" in one.name
            if is_left and (is_list or is_place) and one.name != "embed_dim":
                odd.add((name, one.name, str(one.type)))
    assert not odd


def test_each_overload_is_followed_in_some_call(left_out):
    assert len(left_out) > 500
    missing = {
        f"{name}.{schema.overload_name}".removesuffix(".")
        for name, schema, left in left_out.values()
        if left is None and name not in RANDOM
    }
    assert missing == NEVER


@pytest.mark.parametrize("given", [[0], "rows", 1.5])
def test_an_argument_that_no_rule_knows_leaves_the_question_open(given):
    schema = torch._C.parse_schema("aten::softmax(Tensor self, int dim, Any along) -> Tensor")
    torch_flow = TorchFlow(flow())
    made = torch_flow.call(schema, [tensor(2, has_rows=True), 1, given], {})
    assert isinstance(made.value, LostTensor)
    assert "along" in made.value.reason
