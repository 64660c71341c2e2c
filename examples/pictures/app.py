"""A model that turns pictures, PNG, JPEG or what else Pillow reads, into what `digit_net` takes."""

import io
from typing import Annotated

import numpy as np
from PIL import Image, ImageOps

import inferd
from inferd.errors import InvalidRequest

SIDE = 16
MOST_PIXELS = 25_000_000  # a small file may claim to be a picture of gigabytes

Digits = Annotated[np.ndarray, inferd.Spec("FP32", [-1, SIDE, SIDE], name="image")]


@inferd.model(batched=True, max_batch_size=4)
def read_pictures(picture: list[bytes]) -> Digits:
    """Return each picture as 16x16 pixels of 0 to 1, ink on an empty ground."""
    return np.stack([_pixels(one) for one in picture])


def _pixels(data: bytes) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MOST_PIXELS:
                msg = f"a picture of {image.width} x {image.height} pixels is too large"
                raise InvalidRequest(msg)
            gray = ImageOps.exif_transpose(image).convert("L")
    except Image.DecompressionBombError as error:
        msg = "that picture is too large"
        raise InvalidRequest(msg) from error
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's, for what it cannot read
        msg = "that is no picture, or a damaged one"
        raise InvalidRequest(msg) from error
    pixels = np.asarray(gray.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) / 255
    if pixels.mean() > 0.5:  # dark ink on light paper
        pixels = 1 - pixels
    return pixels
