"""Values drawn at random."""

import numpy as np
import pytest

from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.values.drawn import STRING_BYTES, drawn


def draw(datatype, dims, shapes=(), seed=0, **more):
    inputs = [TensorMetadata("x", datatype, dims)]
    return drawn(inputs, np.random.default_rng(seed), dict(shapes), **more)[0]


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_has_values_and_the_same_for_the_same_seed(datatype):
    one, same = draw(datatype, (2, 3)), draw(datatype, (2, 3))
    assert one.shape == (2, 3) and bytes(one.view()) == bytes(same.view())
    assert bytes(one.view()) != bytes(draw(datatype, (2, 3), seed=1).view())
    if datatype is DataType.BYTES:
        assert {len(each) for each in one.strings()} == {STRING_BYTES}
    else:
        assert one.size_bytes == 6 * datatype.size_bytes


def test_dims_that_may_be_any_are_to_be_given():
    with pytest.raises(InvalidRequest, match="as in --shape x:8,3"):
        draw(DataType.FP32, (-1, 3))
    assert draw(DataType.FP32, (-1, 3), [("x", (5, 3))]).shape == (5, 3)
    with pytest.raises(
        InvalidRequest, match=r"--shape x:5,4 does not fit the input's dims \[-1,3\]"
    ):
        draw(DataType.FP32, (-1, 3), [("x", (5, 4))])


def test_nothing_is_drawn_for_a_model_that_declares_nothing():
    with pytest.raises(InvalidRequest, match="give --input"):
        drawn([], np.random.default_rng(0), {})


def test_the_batch_is_a_dim_before_those_that_are_given():
    assert draw(DataType.FP32, (-1, 3), batch=4, is_batched=True).shape == (4, 3)
    made = draw(DataType.FP32, (-1, -1), [("x", (7,))], batch=2, is_batched=True)
    assert made.shape == (2, 7)


@pytest.mark.parametrize("datatype", [DataType.FP32, DataType.FP16, DataType.BOOL, DataType.BYTES])
@pytest.mark.parametrize("dims", [(10**15, 2), (10**25,), (1,) * 65])
def test_more_than_there_can_be_is_refused(datatype, dims):
    declared = [TensorMetadata("x", datatype, (-1,) * len(dims))]
    with pytest.raises(InvalidRequest, match=r"input 'x' cannot be drawn with dims \["):
        drawn(declared, np.random.default_rng(0), {"x": dims})
