"""The pickles of TorchScript, written by hand: protocol 2, as PyTorch's own writer does."""

import pickle

import pytest

from inferd.backends.pytorch.pickles import check_pickle


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def number(value):
    return b"J" + value.to_bytes(4, "little", signed=True)


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(count, key="0", kind="FloatStorage"):
    kind = f"ctorch\n{kind}\n".encode()
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + b"tQ"


def tensor(stored, offset, shape, strides):
    arguments = stored + number(offset) + numbers(shape) + numbers(strides) + b"\x89}"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def program(*parts):
    return b"\x80\x02" + b"".join(parts) + b"."


def test_a_tensor_inside_its_storage_is_fine():
    fine = tensor(storage(12), 0, (3, 4), (4, 1))
    assert check_pickle(program(fine), {"0": 48}) == ""
    assert check_pickle(program(tensor(storage(12), 11, (0, 9), (1, 1))), {"0": 48}) == ""


def test_what_a_pickle_remembers_is_followed():
    remembered = (
        text("storage")
        + b"q\x05"
        + b"0"
        + tensor(
            b"(h\x05ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(99) + b"tQ",
            0,
            (3, 4),
            (4, 1),
        )
    )
    assert "claims 99 elements" in check_pickle(program(remembered), {"0": 48})


@pytest.mark.parametrize(
    ("count", "key", "kind"),
    [
        (13, "0", "FloatStorage"),
        (7, "0", "DoubleStorage"),
        (1, "1", "FloatStorage"),
        (-1, "0", "FloatStorage"),
    ],
)
def test_a_storage_that_is_not_there_is_told(count, key, kind):
    data = program(storage(count, key, kind))
    assert f"storage '{key}' claims {count} elements" in check_pickle(data, {"0": 48})


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (3, 5), (5, 1)),
        (1, (3, 4), (4, 1)),
        (-1, (1,), (1,)),
        (0, (2,), (-1,)),
        (0, (3,), ()),
        (0, (2, 2), (2**30, 1)),
    ],
)
def test_a_tensor_that_reaches_beyond_its_storage_is_told(offset, shape, strides):
    data = program(tensor(storage(12), offset, shape, strides))
    assert "reaches beyond its storage" in check_pickle(data, {"0": 48})


def test_objects_of_native_code_are_told():
    data = program(b"c__torch__.torch.classes.dist_c10d\nTCPStore\n)R")
    assert "torch.classes.dist_c10d.TCPStore" in check_pickle(data, {})
    assert check_pickle(program(b"c__torch__.torch.classes.rnn\nCellParamsBase\n)R"), {}) == ""


def test_a_reference_to_anything_else_is_told():
    assert "no tensor" in check_pickle(program(text("module") + b"Q"), {})


@pytest.mark.parametrize("data", [b"", b"\x80\x02", b"\x80\x02t.", b"\x80\x02R.", b"abc", b"Q."])
def test_a_broken_pickle_is_told(data):
    assert check_pickle(data, {}) == "the pickle is broken"


@pytest.mark.parametrize("value", [{}, {"a": [1, (2.5, None)], "b": {True, b"x"}}, (1, (2, 3))])
def test_pickles_without_tensors_are_fine(value):
    assert check_pickle(pickle.dumps(value, protocol=2), {}) == ""
