"""Pictures as inputs, with the extra inferd[pictures]: pixels, arranged as a model wants them."""

from pathlib import Path
from typing import Any

import numpy as np

from inferd.errors import InvalidRequest
from inferd.tensor.array import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
CHANNELS = (1, 3, 4)
SCALES = ("0..255", "0..1", "-1..1", "imagenet")
"""What a pixel of 0 and of 255 become; "imagenet": less the mean and by the deviation of each
colour there, as torchvision's models want them."""

_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def read_picture(file: Path) -> Array:
    """Return the pixels [height, width, channels], uint8; grey has one channel, others 3 or 4.

    Raises InvalidRequest, also where Pillow is not installed: then the picture can only be sent
    as the file that it is, to a model that takes strings.
    """
    library = _pillow()
    if library is None:
        return np.empty((0, 0, 0), np.uint8)
    try:
        with library.open(file) as opened:
            # Palettes, CMYK and 16 bits are made RGB, which models were trained on.
            mode = opened.mode if opened.mode in ("L", "RGB", "RGBA") else "RGB"
            pixels = np.asarray(opened.convert(mode))
    # Pillow raises SyntaxError for files that are cut off or none of their kind.
    except (OSError, SyntaxError, ValueError, library.DecompressionBombError) as error:
        raise InvalidRequest(f"{file} cannot be read as a picture: {error}") from error
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def arranged(pixels: Array, dims: tuple[int, ...], scale: str, source: str) -> tuple[Array, str]:
    """Return `pixels` as a model with `dims`, without the batch, takes them, and words that say it.

    `dims` are three, or two if grey. It is resized to the height and width that they say. Channels
    are where `dims` have 1, 3 or 4; first if nothing tells. The values are float32 if `scale` says
    so. Raises InvalidRequest.
    """
    if not pixels.size:
        raise InvalidRequest(f"reading {source} needs Pillow: pip install 'inferd[pictures]'")
    if len(dims) not in (2, 3):
        raise InvalidRequest(f"{source} is a picture, but the input has dims {list(dims)}")
    # [3, 224, 3] can be read both ways; channels first is what ONNX and PyTorch have.
    is_last = len(dims) == 3 and dims[2] in CHANNELS and dims[0] not in CHANNELS
    channels = 1 if len(dims) == 2 else dims[2] if is_last else dims[0]
    size = dims[:2] if is_last or len(dims) == 2 else dims[1:]
    if channels not in (-1, *CHANNELS):
        msg = f"{source} is a picture, but dims {list(dims)} have no 1, 3 or 4 for its channels"
        raise InvalidRequest(msg)
    was = pixels.shape
    pixels = _drawn(pixels, channels if channels > 0 else 3, size)
    array = _scaled(pixels, scale)
    kind = {1: "grey", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]
    text = f"{was[1]}x{was[0]} as {pixels.shape[1]}x{pixels.shape[0]} {kind}, pixels {scale}"
    if len(dims) == 2:
        return array[:, :, 0], text
    return array if is_last else array.transpose(2, 0, 1), text


def _drawn(pixels: Array, channels: int, size: tuple[int, ...]) -> Array:
    """Return the pixels with so many channels, and the height and width where they are not -1."""
    library: Any = _pillow()  # it has read them
    flat = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    image = library.fromarray(flat).convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    height, width = (
        want if want > 0 else have for want, have in zip(size, pixels.shape, strict=False)
    )
    if image.size != (width, height):
        # As torchvision resizes by default.
        image = image.resize((width, height), library.Resampling.BILINEAR)
    array = np.asarray(image)
    return array if array.ndim == 3 else array[:, :, None]


def _scaled(pixels: Array, scale: str) -> Array:
    if scale == "0..255":
        return pixels
    shares = pixels.astype(np.float32) / np.float32(255)
    if scale == "0..1":
        return shares
    if scale == "-1..1":
        return shares * 2 - 1
    if pixels.shape[2] != 3:
        raise InvalidRequest("--pixels imagenet is for inputs with three channels")
    return (shares - _MEAN) / _DEVIATION


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image
