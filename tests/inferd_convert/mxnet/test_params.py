import struct
from pathlib import Path

import numpy as np
import pytest

from inferd.errors import InvalidConfig
from inferd_convert.mxnet.params import TYPES, read_params

DATA = Path(__file__).parents[2] / "data" / "mxnet"
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(arrays, magic=0x112, reserved=0):
    """Return a list of arrays; each is (name, bytes)."""
    parts = [struct.pack("<QQQ", magic, reserved, len(arrays)), *(part for _, part in arrays)]
    parts.append(struct.pack("<Q", len(arrays)))
    parts += [struct.pack("<Q", len(name)) + name.encode() for name, _ in arrays]
    return b"".join(parts)


def second(shape, code, content, magic=V2, storage=0):
    head = struct.pack(f"<Iii{len(shape)}q", magic, storage, len(shape), *shape)
    return head + struct.pack("<iii", 1, 0, code) + content


def first(shape, code, content):
    head = struct.pack(f"<I{len(shape)}I", len(shape), *shape)
    return head + struct.pack("<iii", 1, 0, code) + content


def between(shape, code, content):
    head = struct.pack(f"<Ii{len(shape)}q", V1, len(shape), *shape)
    return head + struct.pack("<iii", 1, 0, code) + content


def test_what_mxnet_wrote_is_read():
    arrays = read_params((DATA / "cnn-0000.params").read_bytes(), "cnn-0000.params")
    assert arrays["conv1_weight"].shape == (8, 3, 3, 3)
    assert arrays["bn1_moving_var"].shape == (8,)
    assert np.isfinite(arrays["fc_bias"]).all()


@pytest.mark.parametrize("write", [first, between, second], ids=["first", "V1", "V2"])
def test_every_version_of_an_array_is_read(write):
    data = saved(
        [("arg:w", write((2, 3), 0, MATRIX.tobytes())), ("aux:s", write((1,), 4, b"abcd"))]
    )
    arrays = read_params(data, "p")
    assert np.array_equal(arrays["w"], MATRIX)
    assert arrays["s"].dtype == np.int32


def test_the_third_version_has_scalars():
    data = saved([("x", second((), 0, struct.pack("<f", 2.5), magic=V3))])
    assert read_params(data, "p")["x"] == 2.5


@pytest.mark.parametrize("code", TYPES)
def test_every_element_type_is_read(code):
    dtype = TYPES[code].numpy
    array = np.array([0, 1, 1]).astype(dtype)
    found = read_params(saved([("x", second((3,), code, array.tobytes()))]), "p")["x"]
    assert found.dtype == dtype
    assert np.array_equal(found, array)


def test_an_array_of_nothing_is_read():
    nothing = struct.pack("<Iii", V2, 0, 0)
    assert read_params(saved([("x", nothing)]), "p")["x"].size == 0


def test_a_file_that_is_cut_off_anywhere_is_refused():
    whole = (DATA / "addsub-0000.params").read_bytes()
    for size in range(len(whole)):
        with pytest.raises(InvalidConfig, match=r"'p' is no list of MXNet arrays"):
            read_params(whole[:size], "p")


HUGE = second((2**40, 2**20), 0, b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04" + bytes(40), "it does not begin as one"),
        (struct.pack("<QQQ", 0x112, 0, 2**60), "says that it has 1152921504606846976 arrays"),
        (saved([("x", HUGE)]), "array 1 of 1: it is cut off: 4611686018427387904 bytes should"),
        (saved([("x", second((-2,), 0, b""))]), r"its shape is \[-2\]"),
        (saved([("x", second((0, 2**62, 2**62), 0, b""))]), "which no array can have"),
        (saved([("x", struct.pack("<Iii", V2, 0, 2**30))]), "it has 1073741824 dims"),
        (saved([("x", first((0,) * 40, 0, b""))]), "it has 40 dims"),
        (saved([("x", second((1,), 99, b"abcd"))]), "its element type is 99"),
        (saved([("x", second((1,), 0, b"abcd", storage=1))]), "it is sparse"),
        (saved([]) + b"more", "4 bytes follow its end"),
        (struct.pack("<QQQQ", 0x112, 0, 0, 5), "there are 5 names for 0 arrays"),
        (struct.pack("<QQQ", 0x112, 0, 1) + first((0,), 0, b"") + struct.pack("<QQ", 1, 2**50),
         "the names: it is cut off"),
    ],
)  # fmt: skip
def test_hostile_lists_are_refused_by_their_place(data, reason):
    with pytest.raises(InvalidConfig, match=reason):
        read_params(data, "p")
