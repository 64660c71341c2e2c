"""The batch dim of a tensor between a model that has one and a model that has none."""

import pytest

from inferd.schedulers.ensemble_parts.plan import BatchDim, agree


@pytest.mark.parametrize(
    ("dims", "shape", "got"),
    [
        ((3,), (3,), (1, 3)),
        ((), (), (1,)),
        ((-1,), (7,), (1, 7)),
        ((-1, -1), (7, 2), (1, 7, 2)),
        ((3,), (5, 3), (5, 3)),  # it is a batch already
        ((3,), (4,), (4,)),  # which the model refuses
    ],
)
def test_a_tensor_that_is_one_item_becomes_a_batch_of_one(dims, shape, got):
    assert BatchDim(dims, adds=True).of(shape) == got


@pytest.mark.parametrize(
    ("dims", "shape", "got"),
    [
        ((3,), (1, 3), (3,)),
        ((), (1,), ()),
        ((-1,), (1, 7), (7,)),
        ((-1, 3), (1, 3), (1, 3)),  # the model takes batches, in a dim of its own
        ((-1, 3), (5, 3), (5, 3)),
        ((3,), (2, 3), (2, 3)),  # which the model refuses
        ((), (), ()),
    ],
)
def test_a_batch_of_one_becomes_the_item_that_a_model_without_batches_takes(dims, shape, got):
    assert BatchDim(dims, adds=False).of(shape) == got


def test_shapes_agree_if_a_tensor_can_have_both():
    assert agree((-1, 2), (5, -1))
    assert not agree((3, 2), (5, 2))
    assert not agree((-1,), (5, 2))
