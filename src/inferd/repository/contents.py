"""Reads files of limited size: configurations, and what they name, such as labels and data."""

from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.config.names import is_inside
from inferd.config.rules.complaint import within
from inferd.errors import InvalidConfig

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""A larger config.pbtxt is refused unread: no real one comes near this size."""

MAX_LABEL_BYTES = 16 << 20
"""Enough for a million labels, the most that can be asked for."""


def read_limited(file: Path, max_bytes: int, place: str) -> bytes:
    """Return the contents of `file`.

    Raises InvalidConfig, which calls it `place`, if it has more than `max_bytes`, and OSError.
    """
    with file.open("rb") as source:
        # One byte more than is allowed shows that the file is too large, without trusting its
        # size: that of a file in /proc is 0.
        content = source.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InvalidConfig(f"{place} is larger than {max_bytes} bytes")
    return content


def read_inside(folder: Path, filename: str, place: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` of the file `filename`, which the field `place` names.

    Raises InvalidConfig if it is missing, not inside `folder`, or cannot be read.
    """
    # Before anything is looked up: clients send such names, and are not told what exists elsewhere.
    if not is_inside(filename):
        raise _outside(filename, place)
    file = folder / filename
    if not _is_file(file):
        raise InvalidConfig(f"{place} names '{filename}', and there is no such file")
    # Names were looked at above; now that it exists, a link in it can lead out, too.
    if not file.resolve().is_relative_to(folder.resolve()):
        raise _outside(filename, place)
    try:
        with file.open("rb") as source:
            return source.read(max_bytes)
    except OSError as error:
        raise InvalidConfig(f"{place} '{filename}' cannot be read: {error.strerror}") from error


def _outside(filename: str, place: str) -> InvalidConfig:
    return InvalidConfig(f"{place} '{filename}' leads out of the model's folder")


def _is_file(path: Path) -> bool:
    """Tell whether `path` is a regular file, not a pipe, say, which would block when opened."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file can have
        return False


def read_labels(folder: Path, config: ModelConfig) -> dict[str, list[bytes]]:
    """Return the labels of the model in `folder`, by output name, for outputs that have any.

    Raises InvalidConfig for a file that is missing, too large, or not inside the folder.
    """
    labels, place = {}, f"model '{config.name}'"
    for number, output in enumerate(config.output):
        if output.label_filename:
            with within("output", number, "label_filename"):
                labels[output.name] = _lines(folder, output.label_filename, place)
    return labels


def _lines(folder: Path, filename: str, model: str) -> list[bytes]:
    place = f"{model}: label_filename"
    content = read_inside(folder, filename, place, MAX_LABEL_BYTES + 1)
    if len(content) > MAX_LABEL_BYTES:
        msg = f"{model}: '{filename}' is larger than the {MAX_LABEL_BYTES} bytes labels may have"
        raise InvalidConfig(msg)
    # An empty line is an index without a label; only the last line break is none.
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return [line.removesuffix(b"\r") for line in lines]
