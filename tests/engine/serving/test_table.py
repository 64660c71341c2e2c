"""Requests to models that take rows as clients have them."""

import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.serving.served import Served
from inferd.engine.serving.table import row_count
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor


def model(width=4, said="true", max_batch_size=8, names=("x",), **parameters):
    """A served version called 'm' that takes rows, as clients have them if `said`."""
    config = ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=tuple(
            ModelInput(name, DataType.FP32, (width,) if max_batch_size else (-1, width))
            for name in names
        ),
        output=(ModelOutput("y", DataType.FP64, (-1,)),),
        parameters={"inferd_table": said, **parameters},
    )
    return Served(config, 1, "sklearn_skops", scheduler=None)


def tensor(name, values, datatype=DataType.FP32, shape=None):
    array = np.array(values, datatype.numpy)
    return Tensor.from_numpy(name, array.reshape(shape or array.shape), datatype)


def checked(served, *inputs):
    """Return the checked request, whose inputs are still those that came."""
    request = InferRequest("m", inputs=list(inputs))
    data = [one.data for one in inputs]
    served.requests.check(request)
    assert [one.data for one in request.inputs] == data or all(
        got.data is one for got, one in zip(request.inputs, data, strict=True)
    )
    return request


def complaint(served, *inputs):
    with pytest.raises(InvalidRequest) as caught:
        served.requests.check(InferRequest("m", inputs=list(inputs)))
    return caught.value.message


@pytest.mark.parametrize("datatype", list(DataType), ids=lambda one: one.value)
def test_rows_of_any_datatype_reach_the_model_as_they_are(datatype):
    values = np.array([b"a", b"b"]) if datatype is DataType.BYTES else np.array([1, 0])
    given = tensor("x", np.tile(values.astype(datatype.numpy), (3, 2)), datatype)
    request = checked(model(), given)
    assert request.inputs[0].datatype is datatype
    assert request.batch_size == 3


def test_a_request_like_an_earlier_one_is_not_checked_again():
    served, key = model(), object()
    first = InferRequest("m", inputs=[tensor("x", [[1, 2, 3, 4]])])
    first.batch_key = key
    served.requests.check(first)
    assert first.batch_key is key
    second = InferRequest("m", inputs=[])
    second.batch_key = key
    served.requests.check(second)
    assert second.batch_size == 1


@pytest.mark.parametrize("count", [1, 8, 9, 1000])
@pytest.mark.parametrize("max_batch_size", [1, 8])
def test_there_may_be_any_number_of_rows(count, max_batch_size):
    served = model(max_batch_size=max_batch_size)
    assert checked(served, tensor("x", [[1, 2, 3, 4]] * count)).batch_size == count
    assert "batch size 0" in complaint(served, tensor("x", [], shape=(0, 4)))


def test_without_batching_rows_are_a_dim_like_others():
    assert checked(model(max_batch_size=0), tensor("x", [[1, 2, 3, 4]] * 9)).batch_size == 1


def test_models_that_take_no_tables_have_their_limits():
    served = model(said="false")
    assert "batch-size must be <= 8" in complaint(served, tensor("x", [[1, 2, 3, 4]] * 9))
    assert "data-type is 'INT64'" in complaint(served, tensor("x", [[1, 2, 3, 4]], DataType.INT64))


def test_columns_have_names_and_datatypes_of_their_own():
    columns = (
        tensor("a", [1, 2], DataType.INT32),
        tensor("b", [0.5, 1.5], DataType.FP64),
        tensor("c", [True, False], DataType.BOOL, (2, 1)),
        tensor("d", [b"u", b"v"], DataType.BYTES),
    )
    assert checked(model(), *columns).batch_size == 2


def test_columns_that_the_configuration_lists_are_all_needed():
    served = model(1, names=("a", "b"))
    a, b = tensor("a", [1, 2]), tensor("b", [3, 4])
    assert checked(served, b, a).batch_size == 2
    assert "unexpected inference input 'z'" in complaint(served, a, tensor("z", [3, 4]))
    assert "expected 2 inputs but got 1" in complaint(served, a)
    assert "already exists in request" in complaint(served, a, a)
    whole = tensor("rows", [[1, 3]])
    anything = model(1, names=("a", "b"), inferd_any_input_name="true")
    assert checked(anything, whole).batch_size == 1


def test_a_name_that_occurs_twice_is_refused():
    a = tensor("a", [1, 2])
    assert "already exists in request" in complaint(model(), a, a)


def test_columns_have_equally_many_rows():
    text = complaint(model(), tensor("a", [1, 2]), tensor("b", [1]))
    assert text == "all columns of a table have the same number of rows, these are 'a' [2], 'b' [1]"
    with pytest.raises(InvalidRequest, match=r"'a' \[\]"):
        row_count([tensor("a", 1, shape=())])


def test_a_single_column_needs_no_second_dim():
    assert checked(model(1), tensor("x", [1, 2, 3])).batch_size == 3
    assert "Expected [-1,4], got [3]" in complaint(model(), tensor("x", [1, 2, 3]))
    assert "Expected [-1,4], got [2,3]" in complaint(model(), tensor("x", [[1, 2, 3]] * 2))


def encoded(kind, *elements, datatype=DataType.BYTES):
    column = tensor("x", elements, datatype)
    column.parameters = {"content_type": kind, "other": 1}
    return column


def test_base64_is_read_if_the_content_type_says_so():
    served = model(-1)
    column = encoded("base64", b"b3Nsbw==", b"", b"YWI=")
    request = InferRequest("m", inputs=[column])
    request.batch_key = object()
    for _ in range(2):  # what has been read is not read again
        served.requests.check(request)
        assert request.inputs[0].strings() == [b"oslo", b"", b"ab"]
    assert request.batch_key is None
    assert request.inputs[0].parameters == {"other": 1}
    columns = [encoded("base64", b"YWI="), encoded("base64", b"Yw==")]
    columns[1].name = "y"
    served.requests.check(InferRequest("m", inputs=columns))
    assert [column.strings() for column in columns] == [[b"ab"], [b"c"]]
    assert "and an element is none: " in complaint(served, encoded("base64", b"b3Nsbw"))


def test_other_content_types_change_nothing_or_are_refused():
    served = model(-1)
    for kind in ("str", "np", "pd", "mine", 5):
        assert checked(served, encoded(kind, b"b3Nsbw==")).inputs[0].strings() == [b"b3Nsbw=="]
    checked(served, encoded("base64", 1, datatype=DataType.INT32))
    for kind in ("datetime", "pd_json"):
        assert f"content_type '{kind}', which is not read" in complaint(served, encoded(kind, b"a"))


def test_a_name_is_any_if_the_configuration_says_so():
    served = model(inferd_any_input_name="true")
    assert checked(served, tensor("rows", [[1, 2, 3, 4]])).inputs[0].name == "x"
    assert "unexpected inference input 'rows'" in complaint(model(), tensor("rows", [[1, 2, 3, 4]]))


def test_a_parameter_that_is_no_boolean_is_told():
    with pytest.raises(InvalidConfig, match="inferd_table is 'a', expected true or false"):
        model(said="a")


def answered(served, array, datatype):
    request = checked(served, tensor("x", [[1, 2, 3, 4]] * len(array)))
    output = Tensor.from_numpy("y", np.asarray(array, datatype.numpy), datatype)
    served.responses.check(request, InferResponse("m", "1", outputs=[output]))
    [found] = served.outputs()
    assert served.config.output[0].dims == found.shape[1:]
    assert served.config.output[0].datatype is found.datatype
    return found.datatype.value, found.shape


def test_the_first_answer_shows_what_an_output_is():
    served = model(inferd_found_outputs="true")
    assert served.outputs()[0].shape == (-1, -1)
    assert answered(served, [[1, 2, 3]], DataType.INT64) == ("INT64", (-1, 3))
    assert answered(served, [[1, 2, 3]] * 2, DataType.INT64) == ("INT64", (-1, 3))
    assert answered(served, [[1, 2]], DataType.INT64) == ("INT64", (-1, -1))
    assert answered(served, [[1, 2, 3]], DataType.INT64) == ("INT64", (-1, -1))
    assert answered(served, [[[1]]], DataType.FP32) == ("FP32", (-1, 1, 1))
