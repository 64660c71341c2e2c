import pytest

from inferd.backends.pytorch.naming import binding, inputs_in_order, outputs_in_order
from inferd.backends.pytorch.structure import TorchArgument
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

XY = [TorchArgument("x", "Tensor"), TorchArgument("y", "Tensor")]
XYZ = [*XY, TorchArgument("z", "Optional[Tensor]", optional=True)]
DICT = [TorchArgument("given", "Dict[str, Tensor]")]


def config(*names):
    return ModelConfig(
        "m",
        input=tuple(ModelInput(name, DataType.FP32, (-1,)) for name in names),
        output=tuple(ModelOutput(name, DataType.FP32, (-1,)) for name in names),
    )


@pytest.mark.parametrize(
    ("names", "arguments", "order"),
    [
        (("y", "x"), XY, ["x", "y"]),
        (("b__1", "a__0"), XY, ["a__0", "b__1"]),
        (("b", "a"), XY, ["b", "a"]),
        (("x", "y"), XYZ, ["x", "y"]),
        (("x", "z", "y"), XYZ, ["x", "y", "z"]),
        (("q", "p", "r"), DICT, ["q", "p", "r"]),
        (("q__1", "p__0"), DICT, ["p__0", "q__1"]),
    ],
)
def test_inputs_take_the_order_of_their_arguments(names, arguments, order):
    assert inputs_in_order(config(*names), arguments) == order


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("x",), "argument 'y' is no input"),
        (("a",), "has 1 inputs, but forward takes x, y"),
        (("a", "b", "c"), "has 3 inputs, but forward takes x, y"),
        (("a__0", "b__0"), "not 0 to 1, each once"),
        (("a__1", "b__2"), "not 0 to 1, each once"),
    ],
)
def test_inputs_that_fit_no_argument_are_refused(names, text):
    with pytest.raises(InvalidConfig, match=text):
        inputs_in_order(config(*names), XY)


def test_outputs_go_by_number_only_if_all_have_one():
    assert outputs_in_order(config("b__2", "a__0")) == ["a__0", "", "b__2"]
    assert outputs_in_order(config("b__2", "a")) == ["b__2", "a"]
    with pytest.raises(InvalidConfig, match="the same number after '__'"):
        outputs_in_order(config("a__1", "b__1"))


STATE = TorchArgument("state", "Optional[Tuple[Tensor, Tensor]]", optional=True)
EXTRA = TorchArgument("targets", "Optional[List[Dict[str, Tensor]]]", optional=True)


@pytest.mark.parametrize(
    ("names", "arguments", "taken"),
    [
        (("x", "state.0", "state.1"), [XY[0], STATE], ["x", "state.0", "state.1"]),
        (("x", "h", "c"), [XY[0], STATE], ["x", "h", "c"]),
        (("c__2", "x__0", "h__1"), [XY[0], STATE], ["x__0", "h__1", "c__2"]),
        (("x",), [XY[0], STATE], ["x"]),
        (("y",), [TorchArgument("x", "Optional[Tensor]", optional=True), XY[1]], ["y"]),
    ],
)
def test_parts_of_a_tuple_are_inputs_of_their_own(names, arguments, taken):
    bound = binding(config(*names), arguments)
    assert list(bound.names.values()) == taken
    assert (bound.many, bound.rest) == (None, ())


@pytest.mark.parametrize(
    ("names", "arguments", "rest"),
    [
        (("a", "x", "b"), [XY[0], *DICT], ("a", "b")),
        (("a__1", "b__0"), [TorchArgument("images", "List[Tensor]"), EXTRA], ("b__0", "a__1")),
        (("b", "a"), [TorchArgument("images", "List[Tensor]"), EXTRA], ("b", "a")),
    ],
)
def test_what_is_no_argument_goes_to_the_one_that_takes_many(names, arguments, rest):
    bound = binding(config(*names), arguments)
    assert bound.many.name in ("given", "images")
    assert bound.rest == rest
    assert EXTRA not in bound.arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([*DICT, TorchArgument("more", "List[Tensor]")], "only one can take many tensors"),
        ([*DICT, XY[1]], "argument 'y' is no input"),
    ],
)
def test_inputs_beside_many_that_fit_no_argument_are_refused(arguments, text):
    with pytest.raises(InvalidConfig, match=text):
        binding(config("x"), arguments)
