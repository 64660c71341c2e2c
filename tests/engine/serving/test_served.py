import asyncio
import json
import mmap
from math import prod

import numpy as np
import pytest
from fields import with_fields

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.core.rows import Joining
from inferd.engine.serving.request_check import MOST_EMPTY, MOST_SOUND
from inferd.engine.serving.response_check import INLINE_CLASSES, INLINE_ELEMENTS
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32, INT32, BYTES = DataType.FP32, DataType.INT32, DataType.BYTES
NUMERIC = [datatype for datatype in DataType if datatype is not BYTES]


def model(
    *inputs,
    outputs=(("SUM", FP32, (4,)), ("DIFF", FP32, (4,))),
    max_batch_size=0,
    parameters=(),
    decoupled=False,
):
    """A served version called 'm'; inputs and outputs are (name, datatype, dims[, optional])."""
    config = ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=tuple(
            ModelInput(name, datatype, dims, optional=bool(more))
            for name, datatype, dims, *more in inputs
        ),
        output=tuple(ModelOutput(*output) for output in outputs),
        parameters=dict(parameters),
        decoupled=decoupled,
    )
    # The scheduler takes no part in checks.
    labels = {"SUM": [b"none", b"one"]}
    return Served(config, 3, "onnx_onnxv1", scheduler=None, labels=labels)


A, B = ("A", FP32, (4,)), ("B", FP32, (4,))


def tensor(name, shape=(4,), datatype=FP32):
    size = prod(abs(dim) for dim in shape) * (datatype.size_bytes or 4)
    return Tensor(name, datatype, shape, bytes(size))


def ask(*inputs, wanted=()):
    return InferRequest("m", inputs=list(inputs), outputs=[WantedOutput(name) for name in wanted])


def answer(*outputs):
    return InferResponse("m", "3", outputs=list(outputs))


def complaint(served, request):
    with pytest.raises(InvalidRequest) as caught:
        served.requests.check(request)
    return caught.value.message


# --- whether its requests are joined ---


def test_a_shown_configuration_tells_whether_requests_are_joined_and_why():
    served = model(A, max_batch_size=8, parameters={"mine": "1"})
    assert served.shown_config() is served.config
    served.joining = Joining("joined", "its rows are independent")
    assert served.shown_config().parameters == {
        "mine": "1",
        "inferd_joined": "joined",
        "inferd_joining_reason": "its rows are independent",
    }
    assert served.config.parameters == {"mine": "1"}


# --- metadata ---


def test_metadata_has_the_batch_dim_of_a_batching_model_only():
    assert model(A, max_batch_size=8).inputs() == [TensorMetadata("A", FP32, (-1, 4))]
    assert model(A).outputs() == [
        TensorMetadata("SUM", FP32, (4,)),
        TensorMetadata("DIFF", FP32, (4,)),
    ]
    assert model(A, outputs=[("Y", INT32, (-1, 2))], max_batch_size=1).outputs() == [
        TensorMetadata("Y", INT32, (-1, -1, 2))
    ]


def test_a_version_is_text_and_keeps_its_config():
    served = model(A)
    assert (served.name, served.version, served.platform) == ("m", "3", "onnx_onnxv1")
    assert served.config.input[0].name == "A"


# --- which inputs ---

ANY_NAME = {"inferd_any_input_name": "true"}


def test_the_one_input_of_a_model_that_says_so_has_any_name():
    served = model(A, max_batch_size=8, parameters=ANY_NAME)
    for name in ("input-0", "A", "predict"):
        request = ask(tensor(name, (3, 4)))
        request.batch_key = object()
        served.requests.check(request)
        assert (request.inputs[0].name, request.batch_size) == ("A", 3)
        assert (request.batch_key is None) == (name != "A")
    assert "input 'A' data-type is 'INT32'" in complaint(served, ask(tensor("x", (3, 4), INT32)))


@pytest.mark.parametrize("named", ["DIFF", "DIFF,nothing", "predict,DIFF"])
@pytest.mark.parametrize("binary", [True, False])
def test_who_asks_for_no_output_gets_the_default_ones(named, binary):
    served = model(A, parameters={"inferd_default_outputs": named})
    for _ in range(2):
        request = ask(tensor("A"))
        request.batch_key, request.binary_output = "the same", binary
        served.requests.check(request)
        assert request.outputs == [WantedOutput("DIFF", binary)]
    asked = ask(tensor("A"), wanted=["SUM"])
    served.requests.check(asked)
    assert [one.name for one in asked.outputs] == ["SUM"]


def test_defaults_that_are_not_there_are_all_outputs():
    request = ask(tensor("A"))
    model(A, parameters={"inferd_default_outputs": "predict"}).requests.check(request)
    assert request.outputs == []


def test_otherwise_names_are_compared():
    assert "It has no input 'x', it" in complaint(
        model(A, B, parameters=ANY_NAME), ask(tensor("x"))
    )
    two = ask(tensor("x"), tensor("y"))
    assert "has no input 'x', 'y'" in complaint(model(A, parameters=ANY_NAME), two)
    assert [one.name for one in two.inputs] == ["x", "y"]
    refused = {"inferd_any_input_name": "false"}
    assert "unexpected inference input 'x'" in complaint(
        model(A, parameters=refused), ask(tensor("x"))
    )


@pytest.mark.parametrize("names", ["AB", "BA"])
def test_inputs_may_come_in_any_order(names):
    served = model(A, B)
    request = ask(*(tensor(name) for name in names))
    served.requests.check(request)
    assert [one.name for one in request.inputs] == list(names)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("A", "expected 2 inputs but got 1 inputs for model 'm'. "
              "Got input(s) ['A'], but missing required input(s) ['B']. "
              "Please provide all required input(s). It takes 'A', 'B'"),
        ("", "expected 2 inputs but got 0 inputs for model 'm'. "
             "Got input(s) [], but missing required input(s) ['A','B']. "
             "Please provide all required input(s). It takes 'A', 'B'"),
        ("ABX", "expected 2 inputs but got 3 inputs for model 'm'. "
                "Got input(s) ['A','B','X']. It has no input 'X', it takes 'A', 'B'"),
        ("X", "expected 2 inputs but got 1 inputs for model 'm'. "
              "Got input(s) ['X'], but missing required input(s) ['A','B']. "
              "Please provide all required input(s). It has no input 'X', it takes 'A', 'B'"),
        ("AX", "unexpected inference input 'X' for model 'm'. "
               "Got input(s) ['A','X'], but missing required input(s) ['B']. "
               "Please provide all required input(s). It takes 'A', 'B'"),
        ("ABA", "input 'A' already exists in request, model 'm' takes 'A', 'B', each once"),
        ("AA", "input 'A' already exists in request, model 'm' takes 'A', 'B', each once"),
        ("XX", "input 'X' already exists in request, model 'm' takes 'A', 'B', each once"),
        ("ab", "unexpected inference input 'a', 'b' for model 'm'. "
               "Got input(s) ['a','b'], but missing required input(s) ['A','B']. "
               "Please provide all required input(s). It takes 'A', 'B'"),
    ],
)  # fmt: skip
def test_inputs_are_checked_by_name(names, text):
    assert complaint(model(A, B), ask(*(tensor(name) for name in names))) == text


@pytest.mark.parametrize("others", [["B"], ["A", "B"], []])
def test_of_far_too_many_inputs_an_error_names_some(others):
    many = [f"x{number}" for number in range(5000)]
    text = complaint(model(A, B), ask(*(tensor(name) for name in [*many, *others])))
    assert text.startswith(f"expected 2 inputs but got {5000 + len(others)} inputs for model 'm'.")
    lacking = ",".join(f"'{name}'" for name in "AB" if name not in others)
    assert ("missing" in text) is bool(lacking)
    assert not lacking or f"but missing required input(s) [{lacking}]. " in text
    assert "'x99'" in text and "'x4999'" not in text and len(text) < 3000


def test_of_far_too_many_inputs_one_that_is_there_twice_is_told():
    text = complaint(model(A, B), ask(*(tensor("A") for _ in range(5000))))
    assert text == "input 'A' already exists in request, model 'm' takes 'A', 'B', each once"


def test_an_optional_input_may_be_left_out_and_only_that():
    served = model(A, ("C", FP32, (1,), "optional"))
    served.requests.check(ask(tensor("A")))
    served.requests.check(ask(tensor("C", (1,)), tensor("A")))
    # Counting would let this pass: one input of the one required.
    text = complaint(served, ask(tensor("C", (1,))))
    assert text == (
        "missing required input(s) ['A'] for model 'm'. Got input(s) ['C']. "
        "Please provide all required input(s). It takes 'A', 'C'"
    )
    text = complaint(served, ask(tensor("A"), tensor("X")))
    assert text == (
        "unexpected inference input 'X' for model 'm'. Got input(s) ['A','X']. It takes 'A', 'C'"
    )
    text = complaint(served, ask())
    assert text == (
        "expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. "
        "Got input(s) [], but missing required input(s) ['A']. "
        "Please provide all required input(s). It takes 'A', 'C'"
    )


def test_an_optional_input_given_twice_is_refused():
    served = model(A, ("C", FP32, (1,), "optional"))
    assert "input 'A' already exists in request" in complaint(served, ask(tensor("A"), tensor("A")))


def test_a_model_without_inputs_takes_none():
    served = model()
    served.requests.check(ask())
    text = complaint(served, ask(tensor("A")))
    assert text == (
        "expected 0 inputs but got 1 inputs for model 'm'. "
        "Got input(s) ['A']. It has no input 'A', it takes none"
    )


def test_a_model_of_optional_inputs_takes_none():
    model(("C", FP32, (1,), "optional")).requests.check(ask())


# --- datatype and shape ---


def test_a_wrong_datatype_names_input_model_got_and_expected():
    text = complaint(model(A), ask(tensor("A", datatype=INT32)))
    assert text == "inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'"


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((4,), (4,)),
        ((-1,), (0,)),
        ((-1,), (9,)),
        ((2, -1, 3), (2, 0, 3)),
        ((-1, -1), (7, 2)),
    ],
)
def test_a_shape_that_fits_its_dims_passes(dims, shape):
    model(("A", FP32, dims)).requests.check(ask(tensor("A", shape)))


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((4,), (5,)),
        ((4,), ()),
        ((4,), (1, 4)),
        ((4,), (-4,)),
        ((-1,), ()),
        ((-1,), (-1,)),
        ((-1,), (-2,)),
        ((2, -1, 3), (3, 1, 3)),
        ((2, -1, 3), (2, 1)),
        ((-1, -1), (2, -1)),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(dims, shape):
    text = complaint(model(("A", FP32, dims)), ask(tensor("A", shape)))
    expected, got = (str(list(sizes)).replace(" ", "") for sizes in (dims, shape))
    start = f"unexpected shape for input 'A' for model 'm'. Expected {expected}, got {got}"
    assert text in (start, f"{start}; the model does not batch, leave out the 1 in front: [4]")
    assert (text != start) == (shape == (1, 4))


@pytest.mark.parametrize("shape", [(2**40, 0), (0, 2**31, 2), (2**62, 2**62, 0)])
def test_an_input_without_elements_may_not_have_other_dims_without_end(shape):
    asked = model(("A", FP32, (-1,) * len(shape)))
    got = str(list(shape)).replace(" ", "")
    assert complaint(asked, ask(tensor("A", shape))) == (
        f"input 'A' for model 'm' has shape {got}, and no elements; "
        f"the dims beside its 0 may multiply to at most {MOST_EMPTY}"
    )


@pytest.mark.parametrize("shape", [(2**31, 0), (0, 0), (2**15, 0, 2**16)])
def test_an_input_without_elements_may_have_dims_that_soon_end(shape):
    model(("A", FP32, (-1,) * len(shape))).requests.check(ask(tensor("A", shape)))


def test_columns_of_a_table_may_not_have_dims_without_end():
    asked = model(("A", FP32, (-1, -1)), parameters={"inferd_table": "true"})
    assert "no elements" in complaint(asked, ask(tensor("A", (0, 2**40))))


def test_a_scalar_is_what_a_configuration_calls_dims_of_1():
    request = ask(tensor("A", ()))
    model(("A", FP32, (1,))).requests.check(request)
    assert request.inputs[0].shape == (1,)
    assert "Expected [-1,1], got []" in complaint(
        model(("A", FP32, (1,)), max_batch_size=8), ask(tensor("A", ()))
    )


HINTS = [  # dims, max_batch_size, the shape sent, the one that the text tells to send
    ((4,), 8, (4,), "[1,4]"),
    ((1,), 8, (2,), "[2,1]"),
    ((1,), 8, (1,), "[1,1]"),
    ((-1,), 8, (7,), "[1,7]"),
    ((3, 1), 8, (2, 3), "[2,3,1]"),
    ((4,), 0, (1, 4), "[4]"),
    ((1,), 8, (9,), None),
    ((1,), 8, (0,), None),
    ((4,), 8, (1, 5), None),
    ((4,), 0, (2, 4), None),
    ((4, 4), 8, (4,), None),
]


@pytest.mark.parametrize(("dims", "max_batch_size", "shape", "hint"), HINTS)
def test_what_the_text_tells_to_send_is_taken(dims, max_batch_size, shape, hint):
    asked = model(("A", FP32, dims), max_batch_size=max_batch_size)
    text = complaint(asked, ask(tensor("A", shape)))
    _, _, told = text.partition("; ")
    assert told.endswith(f": {hint}") if hint else told == ""
    if hint:
        asked.requests.check(ask(tensor("A", tuple(json.loads(hint)))))


def test_a_shape_without_its_batch_dim_says_how_to_add_it():
    text = complaint(model(A, max_batch_size=8), ask(tensor("A", (4,))))
    assert text == (
        "unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [4]; "
        "the first dim is the batch size, put a 1 before your shape for one item: [1,4]"
    )
    text = complaint(model(A, max_batch_size=8), ask(tensor("A", (1, 5))))
    assert text == "unexpected shape for input 'A' for model 'm'. Expected [-1,4], got [1,5]"
    assert "Expected [-1,4], got []" in complaint(model(A, max_batch_size=8), ask(tensor("A", ())))


@pytest.mark.parametrize("size", [1, 8])
def test_a_batch_up_to_the_limit_passes(size):
    request = ask(tensor("A", (size, 4)), tensor("B", (size, 4)))
    model(A, B, max_batch_size=8).requests.check(request)
    assert request.batch_size == size


def test_a_request_to_a_model_without_batching_has_batch_size_one():
    request = ask(tensor("A", (4,)))
    model(A).requests.check(request)
    assert request.batch_size == 1


@pytest.mark.parametrize("dims", [(4,), (-1,)])
@pytest.mark.parametrize("size", [0, 9, -1, -2])
def test_a_batch_outside_the_limit_is_refused(dims, size):
    served = model(("A", FP32, dims), max_batch_size=8)
    text = complaint(served, ask(tensor("A", (size, 4))))
    if size > 8:
        assert text == ("inference request batch-size must be <= 8 for 'm', that of input 'A' is 9")
    else:
        assert text == f"input 'A' has batch size {size}, model 'm' takes 1 to 8"


def test_inputs_of_one_request_have_one_batch_size():
    text = complaint(model(A, B, max_batch_size=8), ask(tensor("A", (2, 4)), tensor("B", (3, 4))))
    assert text == (
        "input 'B' batch size does not match other inputs for 'm': it is 3, that of another is 2"
    )
    assert "that of another is 2" in complaint(
        model(A, B, max_batch_size=8), ask(tensor("A", (2, 4)), tensor("B", (-1, 4)))
    )


def test_a_model_without_batching_has_no_batch_limit():
    model(("A", FP32, (-1, 4))).requests.check(ask(tensor("A", (0, 4))))
    model(("A", FP32, (-1, 4))).requests.check(ask(tensor("A", (10_000, 4))))


# --- wanted outputs ---


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (["SUM", "DIFF"], ["SUM", "DIFF"]),
        (["DIFF", "SUM"], ["SUM", "DIFF"]),
        (["DIFF"], ["DIFF"]),
        (["SUM"], ["SUM"]),
        ([], []),
    ],
)
def test_wanted_outputs_are_kept_in_the_models_order(wanted, kept):
    request = ask(tensor("A"), wanted=wanted)
    model(A).requests.check(request)
    assert [one.name for one in request.outputs] == kept


@pytest.mark.parametrize("wanted", [["SUM", "SUM"], ["SUM", "DIFF", "SUM"]])
def test_an_output_requested_twice_is_refused(wanted):
    text = complaint(model(A), ask(tensor("A"), wanted=wanted))
    assert text == "output 'SUM' already exists in request, model 'm' gives each once"


def test_of_far_too_many_wanted_outputs_an_error_names_some():
    many = [f"x{number}" for number in range(5000)]
    text = complaint(model(A), ask(tensor("A"), wanted=many))
    assert text.startswith("unexpected inference output 'x0', 'x1', 'x10', ")
    assert text.endswith(" for model 'm', it gives 'DIFF', 'SUM'")
    assert "'x99'" in text and "'x4999'" not in text and len(text) < 1500
    text = complaint(model(A), ask(tensor("A"), wanted=["SUM"] * 5000))
    assert text.startswith("output 'SUM' already exists in request")


@pytest.mark.parametrize("wanted", [["X"], ["SUM", "X"], ["SUM", "DIFF", "X"], ["sum", "diff"]])
def test_an_unknown_wanted_output_is_refused(wanted):
    text = complaint(model(A), ask(tensor("A"), wanted=wanted))
    assert text.startswith("unexpected inference output '")
    assert text.endswith("for model 'm', it gives 'DIFF', 'SUM'")


def ask_for_classes(top_k, *inputs, wanted=("SUM",)):
    request = ask(*inputs, wanted=wanted)
    request.outputs[-1].top_k = top_k
    return request


@pytest.mark.parametrize("datatype", [DataType.FP16, DataType.BOOL, BYTES])
def test_what_has_no_classes_is_refused_before_it_runs(datatype):
    served = model(A, outputs=[("Y", datatype, (4,))])
    text = complaint(served, ask_for_classes(1, tensor("A"), wanted=["Y"]))
    assert text.startswith(
        f"class result not available for output due to unsupported type '{datatype.value}': "
    )


def classes(served, request, *outputs):
    served.requests.check(request)
    assert request.has_top_k
    response = answer(*outputs)
    served.responses.check(request, response)
    given = response.outputs
    before = list(given)
    asyncio.run(served.responses.classify(request, response))
    assert given == before  # the list may be the model's own
    return response.outputs


def test_only_the_outputs_wanted_as_classes_become_classes():
    request = ask_for_classes(2, tensor("A"), wanted=["DIFF", "SUM"])
    summed = Tensor.from_numpy("SUM", np.array([1, 4, 3, 2], np.float32), FP32)
    total, diff = classes(model(A), request, summed, tensor("DIFF"))
    assert (total.datatype, total.shape) == (BYTES, (2,))
    assert total.strings() == [b"4.000000:1:one", b"3.000000:2"]
    assert (diff.datatype, diff.shape) == (FP32, (4,))


@pytest.mark.parametrize(
    ("width", "top_k"), [(INLINE_ELEMENTS + 1, 1), (2 * INLINE_CLASSES, INLINE_CLASSES + 1)]
)
def test_many_classes_are_the_same_from_a_thread(width, top_k):
    served = model(A, outputs=[("Y", INT32, (-1,))], max_batch_size=2)
    values = Tensor.from_numpy("Y", np.arange(width, dtype=np.int32)[None], INT32)
    request = ask_for_classes(top_k, tensor("A", (1, 4)), wanted=["Y"])
    [found] = classes(served, request, values)
    assert found.shape == (1, top_k)
    assert found.strings()[0] == f"{width - 1}:{width - 1}".encode()


# --- raw requests ---


def raw(body):
    data = Tensor("", BYTES, (), memoryview(body))
    return with_fields(InferRequest("m", inputs=[data], binary_output=True), raw=True)


def deduced(served, body):
    request = raw(body)
    served.requests.check(request)
    [found] = request.inputs
    return found


@pytest.mark.parametrize("datatype", NUMERIC)
@pytest.mark.parametrize(("dims", "shape"), [((2, 3), (2, 3)), ((2, -1), (2, 3)), ((-1,), (6,))])
def test_a_raw_request_fills_the_one_input(datatype, dims, shape):
    body = bytes(6 * datatype.size_bytes)
    found = deduced(model(("A", datatype, dims)), body)
    assert (found.name, found.datatype, found.shape) == ("A", datatype, shape)
    assert found.data.obj is body  # a view
    assert found.numpy().shape == shape


@pytest.mark.parametrize("datatype", NUMERIC)
def test_a_raw_request_is_one_item_of_a_batch(datatype):
    found = deduced(
        model(("A", datatype, (2, -1)), max_batch_size=4), bytes(datatype.size_bytes * 8)
    )
    assert found.shape == (1, 2, 4)


@pytest.mark.parametrize("datatype", NUMERIC)
@pytest.mark.parametrize("dims", [(3,), (3, -1)])
def test_a_raw_body_that_does_not_fill_the_input_is_refused(datatype, dims):
    body = bytes(4 * datatype.size_bytes)
    text = complaint(model(("A", datatype, dims)), raw(body))
    assert text == (
        f"a raw binary request cannot be made into input 'A' of model 'm', "
        f"{datatype.value} {list(dims)}: {len(body)} bytes do not fill it"
    )


def alike(batch_key, *inputs, wanted=()):
    request = ask(*inputs, wanted=wanted)
    request.batch_key = batch_key
    return request


def test_what_says_the_same_as_a_sound_request_has_its_batch_size():
    served, batch_key = model(A, max_batch_size=8), object()
    first, second = (alike(batch_key, tensor("A", (3, 4)), wanted=["DIFF"]) for _ in "ab")
    served.requests.check(first)
    assert served.requests._sound == {batch_key: 3}
    served.requests.check(second)
    assert second.batch_size == 3


def test_a_request_that_was_refused_is_refused_again():
    served, batch_key = model(A), object()
    for _ in range(3):
        assert "got [5]" in complaint(served, alike(batch_key, tensor("A", (5,))))


def test_what_is_sound_for_one_model_may_not_be_for_another():
    batch_key = object()
    model(A).requests.check(alike(batch_key, tensor("A")))
    assert "required input(s) ['B']" in complaint(model(B), alike(batch_key, tensor("A")))


def test_what_a_check_changes_it_changes_each_time():
    served, batch_key = model(A), object()
    for _ in range(3):
        request = alike(batch_key, tensor("A"), wanted=["DIFF", "SUM"])
        served.requests.check(request)
        assert [wanted.name for wanted in request.outputs] == ["SUM", "DIFF"]
    scalar, batch_key = model(("A", FP32, (1,))), object()
    for _ in range(3):
        request = alike(batch_key, Tensor("A", FP32, (), bytes(4)))
        scalar.requests.check(request)
        assert request.inputs[0].shape == (1,)
    for _ in range(3):
        request = alike(batch_key, tensor("A"))
        request.outputs = [WantedOutput("SUM", top_k=1)]
        served.requests.check(request)
        assert request.has_top_k


def test_only_so_many_likenesses_are_remembered():
    served = model(A)
    for _ in range(2 * MOST_SOUND):
        served.requests.check(alike(object(), tensor("A")))
    assert len(served.requests._sound) <= MOST_SOUND


def test_a_raw_body_twice_as_long_as_a_fixed_input_is_refused():
    assert "32 bytes do not fill it" in complaint(model(A), raw(bytes(32)))


def test_an_empty_raw_body_is_a_variable_dim_of_zero():
    assert deduced(model(("A", FP32, (2, -1))), b"").shape == (2, 0)
    assert "0 bytes do not fill it" in complaint(model(A), raw(b""))


@pytest.mark.parametrize("dims", [(1,), (1, 1)])
@pytest.mark.parametrize("body", [b"", b"picture", b"\x07\x00\x00\x00picture"])
def test_a_raw_body_is_the_one_string_itself(dims, body):
    found = deduced(model(("A", BYTES, dims)), body)
    assert found.shape == (1,) * len(dims)
    assert found.strings() == [body]


def test_a_raw_string_is_one_item_of_a_batch():
    assert deduced(model(("A", BYTES, (1,)), max_batch_size=2), b"x").shape == (1, 1)


def test_a_raw_request_for_several_strings_is_refused():
    text = complaint(model(("A", BYTES, (2,))), raw(b"x"))
    assert text.endswith("BYTES [2]: BYTES need dims [1], one element")


@pytest.mark.parametrize("dims", [(-1,), (1, -1)])
def test_a_raw_request_for_a_variable_number_of_strings_is_refused(dims):
    text = complaint(model(("A", BYTES, dims)), raw(b"x"))
    assert text.endswith("BYTES need dims [1], one element")


def test_a_raw_string_beyond_its_length_prefix_is_refused():
    with mmap.mmap(-1, 2**32) as body:  # pages nobody touches take no memory
        request = raw(body)
        text = complaint(model(("A", BYTES, (1,))), request)
        request.inputs[0].data.release()
    assert text.endswith("one element has at most 2^32 - 1 bytes")


def test_a_raw_request_with_two_variable_dims_is_refused():
    text = complaint(model(("A", FP32, (-1, -1))), raw(bytes(16)))
    assert text == (
        "The shape of the raw input 'A' can not be deduced because there are more than one "
        "variable-sized dimension: model 'm' expects [-1,-1]"
    )


@pytest.mark.parametrize(("inputs", "count"), [((), 0), ((A, B), 2)])
def test_a_raw_request_needs_a_model_with_one_input(inputs, count):
    text = complaint(model(*inputs), raw(bytes(16)))
    assert text.startswith(
        f"Raw request must only have 1 input (found 1) to be deduced but got {count} inputs in "
        f"'m' model configuration: "
    )


# --- what the model gave ---


def checked(served, request, *outputs):
    served.requests.check(request)
    response = answer(*outputs)
    served.responses.check(request, response)
    return [output.name for output in response.outputs]


@pytest.mark.parametrize("order", [["SUM", "DIFF"], ["DIFF", "SUM"]])
def test_outputs_are_answered_in_the_models_order(order):
    outputs = [tensor(name) for name in order]
    assert checked(model(A), ask(tensor("A")), *outputs) == ["SUM", "DIFF"]


@pytest.mark.parametrize("wanted", [["SUM"], ["DIFF"], ["DIFF", "SUM"]])
def test_outputs_nobody_asked_for_are_dropped(wanted):
    request = ask(tensor("A"), wanted=wanted)
    kept = checked(model(A), request, tensor("SUM"), tensor("DIFF"))
    assert kept == [name for name in ("SUM", "DIFF") if name in wanted]


def failure(served, request, *outputs):
    with pytest.raises(BackendFailed) as caught:
        checked(served, request, *outputs)
    return caught.value.message


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (["SUM"], "'SUM'"),
        ([], "none"),
        (["SUM", "X"], "'SUM', 'X'"),
        (["SUM", "DIFF", "X"], "'DIFF', 'SUM', 'X'"),
        (["SUM", "SUM"], "'SUM'"),
    ],
)
def test_outputs_the_configuration_does_not_have_fail_the_model(given, got):
    text = failure(model(A), ask(tensor("A")), *(tensor(name) for name in given))
    assert text == f"model 'm' gave outputs {got}, expected 'DIFF', 'SUM'"


OPTIONAL = (A, ("C", FP32, (1,), "optional"))


def test_an_output_may_be_missing_where_an_optional_input_is():
    assert checked(model(*OPTIONAL), ask(tensor("A")), tensor("DIFF")) == ["DIFF"]


def test_an_output_may_not_be_missing_when_all_inputs_are_there():
    text = failure(model(*OPTIONAL), ask(tensor("A"), tensor("C", (1,))), tensor("DIFF"))
    assert text == "model 'm' gave outputs 'DIFF', expected 'DIFF', 'SUM'"


def test_an_output_asked_for_by_name_may_not_be_missing():
    text = failure(model(*OPTIONAL), ask(tensor("A"), wanted=["SUM"]), tensor("DIFF"))
    assert text == "model 'm' gave outputs 'DIFF', expected 'SUM'"


@pytest.mark.parametrize(
    ("shape", "datatype"), [((4,), INT32), ((5,), FP32), ((1, 4), FP32), ((), FP32)]
)
def test_an_output_against_the_configuration_fails_the_model(shape, datatype):
    bad = tensor("DIFF", shape, datatype)
    text = failure(model(A), ask(tensor("A")), tensor("SUM"), bad)
    assert text == (
        f"model 'm' produced output 'DIFF' as {datatype.value} {list(shape)}, "
        f"its configuration says FP32 [4]"
    )


def declared(*outputs, max_batch_size=0):
    """A model whose outputs, (name, dims), nobody but its file declares."""
    config = ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("A", FP32, (4,)),),
        output=tuple(ModelOutput(name, FP32, dims, is_declared=True) for name, dims in outputs),
    )
    return Served(config, 3, "onnx_onnxv1", scheduler=None)


@pytest.mark.parametrize("shape", [(5,), (1, 4), (), (0,)])
def test_what_only_the_file_declares_does_not_bind_a_model_and_is_told_once(shape, caplog):
    served = declared(("Y", (4,)))
    for _ in range(2):
        assert checked(served, ask(tensor("A")), tensor("Y", shape)) == ["Y"]
    [record] = caplog.records
    assert record.getMessage() == (
        f"model 'm' produced output 'Y' as FP32 {list(shape)}, its file declares FP32 [4]: "
        f"clients get it as it is"
    )
    assert checked(served, ask(tensor("A")), tensor("Y", (4,))) == ["Y"]


def test_another_datatype_than_the_file_declares_fails_the_model():
    text = failure(declared(("Y", (4,))), ask(tensor("A")), tensor("Y", (4,), INT32))
    assert text.endswith("'Y' as INT32 [4], its configuration says FP32 [4]")


class Joinable:
    """A scheduler that tells whether it was stopped from joining."""

    def __init__(self):
        self.joins = True

    def stop_joining(self):
        was, self.joins = self.joins, False
        return was


@pytest.mark.parametrize(
    ("shape", "joins"), [((2, 5), True), ((2, 4, 1), False), ((2,), False), ((1, 4), False)]
)
def test_outputs_of_another_rank_than_the_file_declares_are_joined_no_more(shape, joins):
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("A", FP32, (4,)),),
        output=(ModelOutput("Y", FP32, (4,), is_declared=True),),
    )
    scheduler = Joinable()
    served = Served(config, 3, "onnx_onnxv1", scheduler=scheduler)
    assert checked(served, ask(tensor("A", (2, 4))), tensor("Y", shape)) == ["Y"]
    assert scheduler.joins is joins
    assert (served.joining.state == "alone" and "output 'Y'" in served.joining.reason) is not joins


@pytest.mark.parametrize(
    ("shape", "max_batch_size", "passes"),
    [
        ((), 0, True),
        ((3,), 0, True),
        ((3, 2, 0), 0, True),
        ((3, 2, -1), 0, False),
        ((3, 2, 2), 4, True),
        ((3,), 4, True),
        ((5,), 4, False),
        ((), 4, False),
    ],
)
def test_an_input_of_unknown_rank_has_any_shape(shape, max_batch_size, passes):
    config = ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("A", FP32, (-1,), is_unranked=True),),
        output=(ModelOutput("Y", FP32, (-1,)),),
    )
    served = Served(config, 3, "onnx_onnxv1", scheduler=None)
    request = ask(tensor("A", shape))
    if passes:
        served.requests.check(request)
        assert request.inputs[0].shape == shape
        assert request.batch_size == (shape[0] if max_batch_size else 1)
    else:
        complaint(served, request)


def test_an_output_of_variable_dims_may_have_any_size():
    served = model(A, outputs=[("Y", FP32, (-1, 2))], max_batch_size=2)
    assert checked(served, ask(tensor("A", (1, 4))), tensor("Y", (1, 0, 2))) == ["Y"]
    text = failure(served, ask(tensor("A", (1, 4))), tensor("Y", (1, 2)))
    assert text.endswith("'Y' as FP32 [1, 2], its configuration says FP32 [-1, -1, 2]")


def lax(*inputs, **more):
    served = model(*inputs, **more)
    served.responses.is_lax = True
    return served


@pytest.mark.parametrize("shape", [(5,), (1, 4), ()])
def test_a_lax_model_may_give_any_shape_which_is_told_once(shape, caplog):
    served = lax(A)
    for _ in range(2):
        given = checked(served, ask(tensor("A")), tensor("SUM", shape), tensor("DIFF"))
        assert given == ["SUM", "DIFF"]
    [record] = caplog.records
    assert record.getMessage() == (
        f"model 'm' produced output 'SUM' as FP32 {list(shape)}, its configuration says "
        f"FP32 [4]: clients get it as it is"
    )


@pytest.mark.parametrize("wanted", [(), ("SUM", "DIFF")])
def test_a_lax_model_may_leave_outputs_out(wanted):
    assert checked(lax(A), ask(tensor("A"), wanted=wanted), tensor("DIFF")) == ["DIFF"]
    assert checked(lax(A), ask(tensor("A"), wanted=wanted)) == []


@pytest.mark.parametrize("wanted", [(), ("SUM", "DIFF"), ("DIFF", "SUM")])
def test_outputs_of_a_lax_model_have_its_order(wanted):
    request = ask(tensor("A"), wanted=wanted)
    assert checked(lax(A), request, tensor("DIFF"), tensor("SUM")) == ["DIFF", "SUM"]
    assert [one.name for one in request.outputs] == (["DIFF", "SUM"] if wanted else [])


def test_wanted_outputs_of_a_decoupled_model_stay_as_they_are_for_its_next_answer():
    served = lax(A, decoupled=True)
    request = ask(tensor("A"), wanted=["SUM", "DIFF"])
    for given in (["DIFF"], ["DIFF", "SUM"], ["SUM"]):
        answered = checked(served, request, *map(tensor, given))
        assert answered == [name for name in ("SUM", "DIFF") if name in given]
    anything = ask(tensor("A"))
    assert checked(served, anything, tensor("DIFF"), tensor("SUM")) == ["DIFF", "SUM"]


def test_a_lax_model_gives_no_output_twice():
    outputs = tensor("DIFF"), tensor("SUM"), tensor("DIFF")
    for wanted in ([], ["DIFF"]):
        text = failure(lax(A), ask(tensor("A"), wanted=wanted), *outputs)
        assert text == "model 'm' gave output 'DIFF' twice"
    assert checked(lax(A), ask(tensor("A"), wanted=["SUM"]), *outputs) == ["SUM"]


def test_a_lax_model_may_give_another_datatype(caplog):
    response = answer(tensor("SUM", datatype=INT32), tensor("DIFF"))
    lax(A).responses.check(ask(tensor("A")), response)
    assert [one.datatype for one in response.outputs] == [INT32, FP32]
    assert "produced output 'SUM' as INT32 [4], its configuration says FP32 [4]" in caplog.text


def test_what_a_lax_model_gives_beyond_its_configuration_nobody_gets(caplog):
    served = lax(A)
    for _ in range(2):
        assert checked(served, ask(tensor("A")), tensor("OTHER"), tensor("DIFF")) == ["DIFF"]
    [record] = caplog.records
    assert record.getMessage() == (
        "model 'm' gave output 'OTHER', which its configuration does not have: nobody gets it"
    )


@pytest.mark.parametrize("datatype", [DataType.FP64, INT32])
def test_classes_are_made_of_what_a_lax_model_gives(datatype):
    request = ask_for_classes(1, tensor("A"), wanted=["SUM"])
    given = Tensor.from_numpy("SUM", np.array([[1, 4]], datatype.numpy), datatype)
    [total] = classes(lax(A), request, given)
    form = "%d" if datatype is INT32 else "%f"
    assert (total.shape, total.strings()) == ((1,), [(form % 4 + ":1:one").encode()])


def test_what_a_lax_model_gives_without_a_batch_is_one_entry():
    request = ask_for_classes(1, tensor("A", (1, 4)), wanted=["SUM"])
    given = Tensor.from_numpy("SUM", np.array([1, 4, 3, 2], np.float32), FP32)
    [total] = classes(lax(A, max_batch_size=2), request, given)
    assert (total.shape, total.strings()) == ((1,), [b"4.000000:1:one"])


def test_what_a_lax_model_gives_with_too_few_dims_is_a_batch_if_it_has_a_row_for_each_item():
    served = lax(A, outputs=[("SUM", FP32, (2, 2))], max_batch_size=4)
    rows = Tensor.from_numpy("SUM", np.array([[1, 4, 3], [9, 7, 8]], np.float32), FP32)
    for size, shape, found in (
        (2, (2, 1), [b"4.000000:1:one", b"9.000000:0:none"]),
        (3, (1,), [b"9.000000:3"]),  # two rows are no batch of three: they are one entry
    ):
        request = ask_for_classes(1, tensor("A", (size, 4)), wanted=["SUM"])
        [total] = classes(served, request, rows)
        assert (total.shape, total.strings()) == (shape, found)


@pytest.mark.parametrize("datatype", [DataType.FP16, DataType.BOOL, BYTES])
def test_what_has_no_classes_is_a_failure_of_a_lax_model_too(datatype):
    request = ask(tensor("A"), wanted=["SUM", "DIFF"])
    request.outputs[0].top_k = 1
    request.has_top_k = True
    text = failure(lax(A), request, tensor("SUM", datatype=datatype), tensor("DIFF"))
    assert f"produced output 'SUM' as {datatype.value} [4]" in text
    odd = tensor("DIFF", datatype=datatype)
    assert checked(lax(A), request, tensor("SUM"), odd) == ["SUM", "DIFF"]


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_classes_are_made_of_the_outputs_that_a_lax_model_has(is_decoupled):
    served = lax(A, decoupled=is_decoupled)
    for given, count in ([["DIFF"], 0], [["SUM"], 1], [[], 0]):
        request = ask(tensor("A"), wanted=["SUM", "DIFF"])
        request.outputs[0].top_k = 2
        outputs = classes(served, request, *map(tensor, given))
        assert [one.name for one in outputs] == given
        assert [one.datatype for one in outputs].count(BYTES) == count


def test_an_output_of_an_array_is_taken_as_it_is():
    array = np.ones((4,), np.float32)
    served = model(A, outputs=[("Y", FP32, (4,))])
    response = answer(Tensor.from_numpy("Y", array, FP32))
    served.responses.check(ask(tensor("A")), response)
    assert response.outputs[0].data is array
