"""Requests to models whose rows may come as a table."""

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput
from inferd.core.request import InferRequest
from inferd.engine.serving.served import Served
from inferd.engine.serving.table import table_of
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import float32_to_bf16
from inferd.tensor.tensor import Tensor

NUMBERS = [datatype for datatype in DataType if datatype not in (DataType.BYTES, DataType.BF16)]


def model(width=4, said="true", datatype=DataType.FP32, max_batch_size=8):
    """A served version called 'm' that takes rows, as a table where `said`."""
    config = ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("x", datatype, (width,)),),
        parameters={"inferd_table": said, "inferd_any_input_name": "true"},
    )
    return Served(config, 1, "sklearn_skops", scheduler=None)


def tensor(name, values, datatype=DataType.FP32, shape=None):
    array = np.array(values, datatype.numpy)
    return Tensor.from_numpy(name, array.reshape(shape or array.shape), datatype)


def taken(served, *inputs):
    """Return the rows that the model gets of a request with `inputs`."""
    request = InferRequest("m", inputs=list(inputs))
    request.batch_key = object()
    served.check_request(request)
    [one] = request.inputs
    assert (one.name, one.datatype) == ("x", DataType.FP32)
    rows = one.numpy()
    assert request.batch_size == len(rows)
    return rows.tolist()


def complaint(served, *inputs):
    with pytest.raises(InvalidRequest) as caught:
        served.check_request(InferRequest("m", inputs=list(inputs)))
    return caught.value.message


@pytest.mark.parametrize("datatype", NUMBERS, ids=lambda one: one.value)
def test_numbers_of_any_type_are_taken(datatype):
    assert taken(model(), tensor("rows", [[1, 0, 1, 1], [0, 1, 1, 0]], datatype)) == [
        [1, 0, 1, 1],
        [0, 1, 1, 0],
    ]


def test_bf16_is_a_number_too():
    bits = float32_to_bf16(np.array([[1.5, -2, 0, 4]], np.float32))
    assert taken(model(), Tensor("x", DataType.BF16, (1, 4), bits)) == [[1.5, -2, 0, 4]]


def test_rows_of_the_models_own_type_are_not_copied():
    request = InferRequest("m", inputs=[tensor("x", [[1, 2, 3, 4]])])
    data, request.batch_key = request.inputs[0].data, (batch_key := object())
    outputs = request.outputs
    model().check_request(request)
    assert request.inputs[0].data is data
    assert request.batch_key is batch_key
    assert request.outputs is outputs  # so that the next one like it is not looked at again


def test_what_was_made_anew_is_like_no_other():
    request = InferRequest("m", inputs=[tensor("x", [[1, 2, 3, 4]], DataType.INT64)])
    request.batch_key = object()
    model().check_request(request)
    assert request.batch_key is None


@pytest.mark.parametrize("count", [1, 8, 9, 1000])
@pytest.mark.parametrize("max_batch_size", [1, 8])
def test_there_may_be_any_number_of_rows(count, max_batch_size):
    served = model(max_batch_size=max_batch_size)
    assert len(taken(served, tensor("x", [[1, 2, 3, 4]] * count))) == count
    assert "batch size 0" in complaint(served, tensor("x", [], shape=(0, 4)))


def test_others_have_their_limits():
    served = model(said="false")
    assert "batch-size must be <= 8" in complaint(served, tensor("x", [[1, 2, 3, 4]] * 9))
    assert "data-type is 'INT64'" in complaint(served, tensor("x", [[1, 2, 3, 4]], DataType.INT64))


def test_columns_are_put_side_by_side():
    columns = (
        tensor("a", [1, 2], DataType.INT32),
        tensor("b", [0.5, 1.5], DataType.FP64),
        tensor("c", [True, False], DataType.BOOL, (2, 1)),
        tensor("d", [7, 8]),
    )
    assert taken(model(), *columns) == [[1, 0.5, 1, 7], [2, 1.5, 0, 8]]


def test_columns_that_are_known_come_in_any_order():
    served = model(2, '["a", "b"]')
    a, b = tensor("a", [1, 2]), tensor("b", [3, 4])
    assert taken(served, a, b) == taken(served, b, a) == [[1, 3], [2, 4]]
    assert taken(served, tensor("rows", [[1, 3]])) == [[1, 3]]
    for wrong in ([a, a], [a, tensor("z", [3, 4])], [a, b, tensor("z", [3, 4])]):
        text = complaint(served, *wrong)
        assert text.endswith("the model takes 'a', 'b', each once")


def test_names_may_have_lost_their_spaces():
    served = model(2, '["fixed_acidity", "pH"]')
    columns = tensor("pH", [1, 2]), tensor("fixed acidity", [3, 4])
    assert taken(served, *columns) == [[3, 1], [4, 2]]


def test_one_column_may_come_flat():
    assert taken(model(1), tensor("x", [1, 2, 3])) == [[1], [2], [3]]
    assert "got [4]" in complaint(model(4), tensor("x", [1, 2, 3, 4]))


def test_texts_may_come_flat():
    served = model(1, datatype=DataType.BYTES)
    request = InferRequest("m", inputs=[tensor("t", [b"a", b"bc"], DataType.BYTES)])
    served.check_request(request)
    assert (request.inputs[0].shape, request.inputs[0].strings()) == ((2, 1), [b"a", b"bc"])


def test_texts_may_be_columns():
    served = model(2, datatype=DataType.BYTES)
    columns = [tensor(name, [name.encode(), b"x"], DataType.BYTES) for name in "ab"]
    request = InferRequest("m", inputs=columns)
    served.check_request(request)
    assert request.inputs[0].shape == (2, 2)
    assert request.inputs[0].strings() == [b"a", b"b", b"x", b"x"]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([tensor("a", [1, 2]), tensor("b", [1])], "as many rows each, these are 'a' [2], 'b' [1]"),
        ([tensor("a", [1]), tensor("b", [b"1"], DataType.BYTES)], "column 'b' has datatype BYTES"),
        ([tensor("a", [1]), tensor("b", [[[1]]])], "column 'b' has shape [1, 1, 1]"),
        ([tensor("a", 1), tensor("b", [1])], "column 'a' has shape []"),
        ([tensor("a", [1]), tensor("b", [1])], "for model 'm'. Expected [-1,4], got [1,2]"),
        ([tensor("a", [[b"1"] * 4], DataType.BYTES)], "data-type is 'BYTES'"),
        ([], "missing required input(s) ['x']"),
    ],
)
def test_what_is_no_table_is_refused(inputs, text):
    assert text in complaint(model(), *inputs)


def test_a_model_of_several_inputs_takes_no_table():
    inputs = tuple(ModelInput(name, DataType.FP32, (1,)) for name in "ab")
    assert table_of(ModelConfig("m", input=inputs, parameters={"inferd_table": "true"})) is None


@pytest.mark.parametrize("said", ["yes", "{}", "[1]", '["a"'])
def test_columns_are_a_list_of_texts(said):
    with pytest.raises(InvalidConfig, match=r"^model 'm': parameter inferd_table is no list of"):
        model(said=said)
