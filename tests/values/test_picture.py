"""Pictures, arranged as models want them."""

import numpy as np
import pytest
from PIL import Image

from inferd.errors import InvalidRequest
from inferd.values.picture import arranged, read_picture


@pytest.fixture
def pixels():
    """A picture of 2 x 4 whose colours are all different."""
    return np.arange(24, dtype=np.uint8).reshape(2, 4, 3)


def test_a_picture_is_its_pixels(tmp_path, pixels):
    Image.fromarray(pixels).save(tmp_path / "p.png")
    assert (read_picture(tmp_path / "p.png") == pixels).all()
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    assert read_picture(tmp_path / "grey.png").shape == (2, 4, 1)
    (tmp_path / "p.png").write_bytes(b"no picture")
    with pytest.raises(InvalidRequest, match="cannot be read as a picture"):
        read_picture(tmp_path / "p.png")


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((3, 2, 4), (3, 2, 4)),
        ((2, 4, 3), (2, 4, 3)),
        ((-1, -1, 3), (2, 4, 3)),
        ((3, -1, -1), (3, 2, 4)),
        ((-1, -1, -1), (3, 2, 4)),
        ((3, 8, 8), (3, 8, 8)),
        ((8, 6, 1), (8, 6, 1)),
        ((4, 2, 4), (4, 2, 4)),
        ((28, 28), (28, 28)),
    ],
)
def test_dims_say_where_channels_are_and_how_large_it_is(pixels, dims, shape):
    assert arranged(pixels, dims, "0..255", "it")[0].shape == shape


def test_what_was_done_is_said(pixels):
    array, text = arranged(pixels, (1, 28, 28), "0..1", "it")
    assert text == "4x2 as 28x28 grey, pixels 0..1"
    assert array.dtype == np.float32 and array.max() <= 1


@pytest.mark.parametrize(
    ("scale", "black", "white"), [("0..255", 0, 255), ("0..1", 0, 1), ("-1..1", -1, 1)]
)
def test_a_scale_says_what_black_and_white_are(scale, black, white):
    pixels = np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8)
    made = arranged(pixels, (-1, -1, 3), scale, "it")[0]
    assert (made[0, 0] == black).all() and (made[0, 1] == white).all()


def test_imagenet_is_for_three_channels(pixels):
    made = arranged(np.zeros((1, 1, 3), np.uint8), (3, 1, 1), "imagenet", "it")[0]
    assert np.allclose(made.ravel(), [-2.1179, -2.0357, -1.8044], atol=1e-4)
    with pytest.raises(InvalidRequest, match="three channels"):
        arranged(pixels, (1, 2, 4), "imagenet", "it")


@pytest.mark.parametrize("dims", [(5,), (1, 3, 2, 4), (7, 7, 7)])
def test_other_dims_are_refused(pixels, dims):
    with pytest.raises(InvalidRequest, match="it is a picture, but"):
        arranged(pixels, dims, "0..1", "it")
