import asyncio
import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.config.model import BatchInput, BatchOutput, ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import BackendFailed, InferdError, InvalidRequest
from inferd.schedulers.execution.batch import JOIN_BYTES, BatchPlan, JoinedInstance
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FIXED = ModelInput("A", DataType.INT32, (2,))
VARIABLE = ModelInput("V", DataType.FP32, (-1,))
RAGGED = ModelInput("R", DataType.FP32, (-1,), allow_ragged_batch=True)
TEXT = ModelInput("T", DataType.BYTES, (-1,))


def plan_of(*inputs, outputs=("Y",), batch_input=(), batch_output=(), max_batch_size=16, **more):
    return BatchPlan(
        ModelConfig(
            "m",
            max_batch_size=max_batch_size,
            input=inputs,
            output=tuple(ModelOutput(name, DataType.FP32, (-1,)) for name in outputs),
            batch_input=batch_input,
            batch_output=batch_output,
            **more,
        )
    )


def tensor(name, values, dtype=np.float32):
    array = np.array(values, dtype)
    datatype = DataType.BYTES if dtype is object else _TYPES[np.dtype(dtype)]
    return Tensor.from_numpy(name, array, datatype)


_TYPES = {datatype.numpy: datatype for datatype in (DataType.FP32, DataType.INT32, DataType.INT8)}


def request_of(*tensors, wants=()):
    size = tensors[0].shape[0] if tensors else 1
    wanted = [WantedOutput(name) for name in wants]
    return InferRequest("m", inputs=list(tensors), outputs=wanted, batch_size=size)


def answer_of(*tensors):
    return InferResponse("m", "1", outputs=list(tensors))


def values(tensors):
    return {one.name: one.numpy().tolist() for one in tensors}


# --- what may run together ---


def test_variable_dims_make_a_kind_and_the_batch_dim_does_not():
    plan = plan_of(FIXED, VARIABLE)

    def kind(batch, length, dtype=np.float32):
        a, v = np.zeros((batch, 2)), np.zeros((batch, length), dtype)
        return plan.kind(request_of(tensor("V", v, dtype), tensor("A", a, np.int32)))

    assert kind(1, 3) == kind(2, 3) != kind(1, 4)
    assert kind(1, 3) != kind(1, 3, np.int32)  # the same number of bytes


def test_the_order_of_the_inputs_makes_no_kind():
    plan = plan_of(VARIABLE, ModelInput("W", DataType.FP32, (-1,)))
    v, w = tensor("V", [[1, 2]]), tensor("W", [[1]])
    assert plan.kind(request_of(v, w)) == plan.kind(request_of(w, v))


def test_the_order_of_a_tables_columns_makes_a_kind():
    plan = plan_of(VARIABLE, parameters={"inferd_table": "true"})
    a, b = tensor("a", [1, 2]), tensor("b", [3, 4])
    assert plan.kind(request_of(a, b)) == plan.kind(request_of(a, b))
    assert plan.kind(request_of(a, b)) != plan.kind(request_of(b, a))


def test_fixed_dims_and_ragged_ones_make_no_kind():
    plan = plan_of(FIXED, RAGGED)
    kinds = {plan.kind(request_of(tensor("R", [range(length)]))) for length in (1, 2, 3)}
    assert kinds == {None}


@pytest.mark.parametrize("ragged", [False, True])
def test_where_inputs_are_optional_the_same_ones_must_be_there(ragged):
    optional = ModelInput("O", DataType.FP32, (-1,), optional=True, allow_ragged_batch=ragged)
    plan = plan_of(FIXED, optional)
    a, o, longer = tensor("A", [[1, 2]], np.int32), tensor("O", [[1]]), tensor("O", [[1, 2]])
    assert plan.kind(request_of(a)) == plan.kind(request_of(a))
    assert plan.kind(request_of(a)) != plan.kind(request_of(a, o))
    assert (plan.kind(request_of(a, o)) == plan.kind(request_of(a, longer))) is ragged


# --- joining ---


def test_inputs_are_joined_along_the_batch_dim_in_the_order_of_the_requests():
    plan = plan_of(FIXED, VARIABLE)
    joined = plan.join(
        [
            request_of(tensor("A", [[1, 2]], np.int32), tensor("V", [[1.5]])),
            request_of(tensor("V", [[2.5], [3.5]]), tensor("A", [[3, 4], [5, 6]], np.int32)),
        ]
    )
    assert values(joined.inputs) == {"A": [[1, 2], [3, 4], [5, 6]], "V": [[1.5], [2.5], [3.5]]}
    assert (joined.model, joined.batch_size) == ("m", 3)


def test_text_is_joined_too():
    requests = [
        request_of(tensor("T", [["a", "bc"]], object)),
        request_of(tensor("T", [["", "d"]], object)),
    ]
    assert values(plan_of(TEXT).join(requests).inputs) == {"T": [[b"a", b"bc"], [b"", b"d"]]}


@pytest.mark.parametrize("size", [8, JOIN_BYTES])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, np.array])
def test_any_buffer_is_joined_and_copied(size, wrap):
    parts = [np.full((1, size), number, np.int8) for number in (1, 2)]
    datas = [wrap(part) if wrap is not memoryview else part.data for part in parts]
    requests = [request_of(Tensor("A", DataType.INT8, (1, size), data)) for data in datas]
    [joined] = plan_of(FIXED).join(requests).inputs
    for part in parts:
        part[:] = 0
    assert (joined.numpy() == [[1] * size, [2] * size]).all()


def test_empty_tensors_are_joined():
    requests = [request_of(tensor("V", np.zeros((n, 0)))) for n in (1, 2)]
    [joined] = plan_of(VARIABLE).join(requests).inputs
    assert joined.numpy().shape == (3, 0)


@pytest.mark.parametrize(
    ("wants", "joined"),
    [
        (["X", ""], ""),
        (["X", "X"], "X"),
        (["ZX", "Z"], "XZ"),
        (["ZX", "Y"], ""),  # all there are
    ],
)
def test_what_any_request_wants_is_asked_for_in_the_models_order(wants, joined):
    plan = plan_of(FIXED, outputs="XYZ")
    a = tensor("A", [[1, 2]], np.int32)
    request = plan.join([request_of(a, wants=names) for names in wants])
    assert [one.name for one in request.outputs] == list(joined)


# --- splitting ---


def test_an_output_is_split_into_views_of_each_requests_rows():
    plan = plan_of(FIXED)
    requests = [request_of(tensor("A", [[0, 0]] * size, np.int32)) for size in (1, 3, 2)]
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    answers = plan.split(requests, answer_of(Tensor("Y", DataType.FP32, (6, 2), whole)))
    assert [values(answer.outputs)["Y"] for answer in answers] == [
        whole[:1].tolist(), whole[1:4].tolist(), whole[4:].tolist()
    ]  # fmt: skip
    whole[:] = 7
    assert answers[1].outputs[0].numpy().tolist() == [[7, 7]] * 3


def test_text_is_split_into_views_too():
    plan = plan_of(TEXT)
    requests = [request_of(tensor("T", [["x"]] * size, object)) for size in (1, 2)]
    output = tensor("Y", [["one", ""], ["two", "three"], ["", "four"]], object)
    first, second = plan.split(requests, answer_of(output))
    assert values(first.outputs) == {"Y": [[b"one", b""]]}
    assert values(second.outputs) == {"Y": [[b"two", b"three"], [b"", b"four"]]}
    assert second.outputs[0].data.obj is output.data


def test_parameters_of_an_answer_are_everybodys_own():
    plan = plan_of(FIXED)
    requests = [request_of(tensor("A", [[0, 0]], np.int32)) for _ in range(2)]
    answer = answer_of(tensor("Y", [[1], [2]]))
    answer.parameters = {"a": 1}
    first, second = plan.split(requests, answer)
    first.parameters["b"] = 2
    assert second.parameters == {"a": 1}


@pytest.mark.parametrize("shape", [(2, 2), (4,), (), (1, 3)])
def test_an_output_of_other_rows_than_the_batch_is_the_models_fault(shape):
    requests = [request_of(tensor("A", [[0, 0]] * size, np.int32)) for size in (1, 2)]
    output = Tensor("Y", DataType.INT8, shape, bytes(12))
    with pytest.raises(BackendFailed, match=r"output 'Y' with shape \[.*\], but the batch has 3 r"):
        plan_of(FIXED).split(requests, answer_of(output))


@pytest.mark.parametrize(
    ("is_declared", "found", "shape", "is_split"),
    [
        (True, "", (3, 4), True),
        (True, "", (3,), False),  # three numbers, of which nobody knows what they are
        (True, "", (3, 4, 1), False),
        (False, "", (3, 4, 1), True),  # refused later
        (True, "true", (3, 4, 1), True),
    ],
)
def test_an_output_of_another_rank_than_the_file_declares_is_not_split(
    is_declared, found, shape, is_split
):
    output = ModelOutput("Y", DataType.FP32, (5,), is_declared=is_declared)
    parameters = {"inferd_found_outputs": found}
    plan = BatchPlan(
        ModelConfig("m", max_batch_size=8, input=(FIXED,), output=(output,), parameters=parameters)
    )
    requests = [request_of(tensor("A", [[1, 2]] * rows, np.int32)) for rows in (1, 2)]
    answer = answer_of(tensor("Y", np.zeros(shape)))
    if is_split:
        shapes = [one.outputs[0].shape for one in plan.split(requests, answer)]
        assert shapes == [(1, *shape[1:]), (2, *shape[1:])]
    else:
        with pytest.raises(BackendFailed, match="the model's file declares 2 dims"):
            plan.split(requests, answer)


def test_malformed_text_is_refused():
    requests = [request_of(tensor("T", [["x"]], object)) for _ in range(2)]
    output = Tensor("Y", DataType.BYTES, (2, 1), b"\1\0\0\0a\xff\0\0\0b")
    with pytest.raises(InferdError, match="'Y'"):
        plan_of(TEXT).split(requests, answer_of(output))


# --- ragged batches ---


def test_ragged_inputs_follow_each_other_in_one_dim():
    requests = [request_of(tensor("R", rows)) for rows in ([[1, 2, 3]], [[4]], [[5, 6], [7, 8]])]
    joined = plan_of(RAGGED).join(requests)
    assert values(joined.inputs) == {"R": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert plan_of(RAGGED).reshapes
    assert not plan_of(FIXED).reshapes


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [3, 4, 5]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [3, 7, 12]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 3, 7, 12]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0, 0, 0, 0, 0]),
        ("BATCH_ITEM_SHAPE", [[3], [4], [5]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 4, 5]),
    ],
)
@pytest.mark.parametrize("datatype", [DataType.INT32, DataType.FP32])
def test_batch_input_tells_the_model_of_each_requests_shape(kind, expected, datatype):
    plan = plan_of(RAGGED, batch_input=(BatchInput(kind, ("N", "M"), datatype, ("R",)),))
    joined = plan.join([request_of(tensor("R", np.zeros((1, n)))) for n in (3, 4, 5)])
    made = {one.name: one for one in joined.inputs}
    assert list(made) == ["R", "N", "M"]
    assert made["N"].numpy().tolist() == made["M"].numpy().tolist() == expected
    assert made["N"].datatype is datatype


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ITEM_SHAPE", [[3, 1], [3, 1], [2, 2]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [3, 1, 3, 1, 2, 2]),
        ("BATCH_ELEMENT_COUNT", [6, 4]),  # of requests, not items
    ],
)
def test_items_of_a_request_share_its_shape(kind, expected):
    ragged = ModelInput("R", DataType.FP32, (-1, -1), allow_ragged_batch=True)
    plan = plan_of(ragged, batch_input=(BatchInput(kind, ("N",), DataType.INT32, ("R",)),))
    joined = plan.join([request_of(tensor("R", np.zeros(s))) for s in ((2, 3, 1), (1, 2, 2))])
    assert joined.inputs[1].numpy().tolist() == expected


def test_an_optional_source_that_is_absent_has_no_elements():
    ragged = ModelInput("R", DataType.FP32, (-1,), optional=True, allow_ragged_batch=True)
    for kind, expected in (("BATCH_ELEMENT_COUNT", [0, 0]), ("BATCH_ITEM_SHAPE_FLATTEN", [])):
        plan = plan_of(ragged, batch_input=(BatchInput(kind, ("N",), DataType.INT32, ("R",)),))
        joined = plan.join([request_of(), request_of()])
        assert joined.inputs[0].numpy().tolist() == expected


def test_batch_output_is_scattered_by_the_shape_of_its_source():
    plan = plan_of(RAGGED, batch_output=(BatchOutput(target_name=("Y",), source_input=("R",)),))
    requests = [request_of(tensor("R", np.zeros(shape))) for shape in ((1, 3), (2, 2), (1, 0))]
    answers = plan.split(requests, answer_of(tensor("Y", range(7))))
    assert [values(answer.outputs)["Y"] for answer in answers] == [
        [[0, 1, 2]], [[3, 4], [5, 6]], [[]]
    ]  # fmt: skip
    with pytest.raises(BackendFailed, match="input 'R' has 7 elements in this batch"):
        plan.split(requests, answer_of(tensor("Y", range(8))))


def test_a_model_without_a_batch_dim_keeps_its_shapes():
    plan = plan_of(VARIABLE, max_batch_size=0)
    request = request_of(tensor("V", [1, 2, 3]))
    assert values(plan.join([request]).inputs) == {"V": [1, 2, 3]}
    [answer] = plan.split([request], answer_of(tensor("Y", [4, 5])))
    assert values(answer.outputs) == {"Y": [4, 5]}


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(sizes, st.integers(0, 3), st.sampled_from([DataType.INT8, DataType.FP64, DataType.BYTES]))
def test_what_was_joined_is_split_into_the_same(sizes, width, datatype):
    plan = plan_of(ModelInput("A", datatype, (-1,)))
    numbers = iter(range(1000))
    requests = []
    for size in sizes:
        array = np.array([[next(numbers) for _ in range(width)] for _ in range(size)])
        array = array.reshape(size, width)
        array = (
            array.astype(str).astype(object)
            if datatype is DataType.BYTES
            else array.astype(datatype.numpy)
        )
        requests.append(request_of(Tensor.from_numpy("A", array, datatype)))
    joined = plan.join(requests)
    answers = plan.split(requests, answer_of(*joined.inputs))
    for request, answer in zip(requests, answers, strict=True):
        [given_], [got] = request.inputs, answer.outputs
        assert got.shape == given_.shape
        assert bytes(got.view()) == bytes(given_.view())


# --- instances that run a batch as one ---


class Doubler:
    """Gives Y = 2 A; fails when some value is negative, by raising or returning `error`."""

    def __init__(self, raises=False):
        self.raises = raises
        self.seen = []
        self.is_closed = False

    def execute(self, requests):
        [request] = requests
        request.computing_ns, request.computed_ns = 5, 7
        array = request.inputs[0].numpy()
        self.seen.append(len(array))
        self.got = array
        if (array < 0).any():
            if self.raises:
                msg = "negative"
                raise ArithmeticError(msg)
            return [InvalidRequest("negative")]
        return [answer_of(Tensor.from_numpy("Y", 2 * array, DataType.INT32))]

    def close(self):
        self.is_closed = True


def a(*rows):
    return request_of(tensor("A", rows, np.int32))


def test_requests_of_an_execution_run_as_one():
    doubler = Doubler()
    requests = [a([1, 2]), a([3, 4], [5, 6])]
    answers = JoinedInstance(doubler, plan_of(FIXED)).execute(requests)
    assert [values(answer.outputs)["Y"] for answer in answers] == [[[2, 4]], [[6, 8], [10, 12]]]
    assert doubler.seen == [3]
    assert not any(request.ran_again for request in requests)
    assert (requests[0].computing_ns, requests[0].computed_ns) == (5, 7)


@pytest.mark.parametrize(
    ("raises", "text"), [(False, "negative"), (True, "model 'm' failed: ArithmeticError: negative")]
)
def test_a_request_that_fails_the_batch_fails_alone(raises, text):
    doubler = Doubler(raises)
    requests = [a([1, 2]), a([-1, 0]), a([3, 4])]
    answers = JoinedInstance(doubler, plan_of(FIXED)).execute(requests)
    assert values(answers[0].outputs) == {"Y": [[2, 4]]}
    assert values(answers[2].outputs) == {"Y": [[6, 8]]}
    assert answers[1].message == text
    assert doubler.seen == [3, 1, 1, 1]
    assert all(request.ran_again for request in requests)


def test_a_model_whose_output_cannot_be_split_still_answers():
    class Summer(Doubler):
        def execute(self, requests):
            total = requests[0].inputs[0].numpy().sum(keepdims=True).astype(np.int32)
            return [answer_of(Tensor.from_numpy("Y", total, DataType.INT32))]

    answers = JoinedInstance(Summer(), plan_of(FIXED)).execute([a([1, 2]), a([3, 4])])
    assert [values(answer.outputs)["Y"] for answer in answers] == [[[3]], [[7]]]


def test_a_ragged_request_is_joined_though_it_is_alone():
    class Lengths(Doubler):
        def execute(self, requests):
            self.seen.append(values(requests[0].inputs))
            return [answer_of(tensor("Y", [[1]]))]

    instance = Lengths()
    plan = plan_of(
        RAGGED, batch_input=(BatchInput("BATCH_ELEMENT_COUNT", ("N",), DataType.INT32, ("R",)),)
    )
    [answer] = JoinedInstance(instance, plan).execute([request_of(tensor("R", [[1, 2, 3]]))])
    assert instance.seen == [{"R": [1, 2, 3], "N": [3]}]
    assert values(answer.outputs) == {"Y": [[1]]}


def test_an_exception_that_is_no_error_ends_the_execution():
    class Ends(Doubler):
        def execute(self, requests):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        JoinedInstance(Ends(), plan_of(FIXED)).execute([a([1, 2]), a([3, 4])])


def test_closing_closes_the_instance():
    doubler = Doubler()
    JoinedInstance(doubler, plan_of(FIXED)).close()
    assert doubler.is_closed


@pytest.mark.slow
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("inputs", [(FIXED,), (FIXED, RAGGED)])
def test_a_failed_batch_leaves_no_tensors_for_the_garbage_collector(raises, count, inputs):
    gc.collect()
    gc.disable()
    try:
        requests = [a([-1, 0]) for _ in range(count)]
        array = np.full((1, 2), -1, np.int32)
        requests[0].inputs[0].data = array
        data = weakref.ref(array)
        del array
        answers = JoinedInstance(Doubler(raises), plan_of(*inputs)).execute(requests)
        assert all(isinstance(answer, InferdError) for answer in answers)
        del requests, answers
        assert data() is None
    finally:
        gc.enable()
