"""examples/pictures as a user runs it: real pictures, an unmodified client."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from PIL import Image
from sklearn.datasets import load_digits
from tritonclient.utils import InferenceServerException

import inferd

PICTURES = Path(__file__).parents[2] / "examples/pictures"


@pytest.fixture(scope="module")
def server():
    with inferd.Server(model_repository=[PICTURES / "app.py", PICTURES / "models"]) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(server.grpc_url) as client:
        yield client


def ask(client, *pictures):
    """Return the digits that the server sees."""
    picture = triton.InferInput("picture", [len(pictures), 1], "BYTES")
    picture.set_data_from_numpy(np.array([[one] for one in pictures], object))
    return client.infer("picture_to_digit", [picture]).as_numpy("digit").ravel().tolist()


def drawn(pixels, kind="PNG", paper="light"):
    """Return a file of a picture, 160 pixels wide, of 8x8 pixels from 0 to 16."""
    shades = pixels / 16 * 255
    image = Image.fromarray((shades if paper == "dark" else 255 - shades).astype(np.uint8))
    file = io.BytesIO()
    image.resize((160, 160), Image.Resampling.BICUBIC).convert("RGB").save(file, kind)
    return file.getvalue()


def test_the_picture_of_the_readme_is_a_three(client):
    assert ask(client, (PICTURES / "three.png").read_bytes()) == [3]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF"])
@pytest.mark.parametrize("paper", ["light", "dark"])
def test_pictures_of_every_kind_are_read(client, kind, paper):
    digits = load_digits()
    pictures = [drawn(image, kind, paper) for image in digits.images[:4]]
    assert ask(client, *pictures) == digits.target[:4].tolist()


def test_many_pictures_at_once_are_mostly_read_right(client):
    digits = load_digits()
    with ThreadPoolExecutor(8) as pool:
        seen = pool.map(lambda image: ask(client, drawn(image))[0], digits.images[:40])
    assert np.mean(np.array(list(seen)) == digits.target[:40]) >= 0.9


def test_what_is_no_picture_is_refused_and_fails_nobody_else(client):
    good = (PICTURES / "three.png").read_bytes()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client, one) for one in (good, b"no picture") * 8]
    for number, one in enumerate(asked):
        if number % 2 == 0:
            assert one.result() == [3]
        else:
            with pytest.raises(InferenceServerException, match="that is no picture, or a damaged"):
                one.result()


@pytest.mark.parametrize(
    ("size", "complaint"),
    [((6000, 6000), "a picture of 6000 x 6000 pixels is too large"), ((60000, 60000), "too large")],
)
def test_a_picture_that_would_fill_the_memory_is_refused_unread(client, size, complaint):
    file = io.BytesIO()
    Image.new("1", (1, 1)).save(file, "BMP")
    head = bytearray(file.getvalue())
    for place, length in zip((18, 22), size, strict=True):
        head[place : place + 4] = length.to_bytes(4, "little")
    with pytest.raises(InferenceServerException, match=complaint):
        ask(client, bytes(head))
