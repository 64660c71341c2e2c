"""Reads files that a model's configuration names, such as labels and data, from its folder."""

from pathlib import Path

from inferd.errors import InvalidConfig


def read_inside(folder: Path, filename: str, place: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` of the file `filename`, which the field `place` names.

    Raises InvalidConfig if it is missing, not inside `folder`, or cannot be read.
    """
    file = folder / filename
    if not _is_file(file):
        msg = f"{place} names '{filename}', and there is no such file"
        raise InvalidConfig(msg)
    if not file.resolve().is_relative_to(folder.resolve()):
        msg = f"{place} '{filename}' leads out of the model's folder"
        raise InvalidConfig(msg)
    try:
        with file.open("rb") as source:
            return source.read(max_bytes)
    except OSError as error:
        msg = f"{place} '{filename}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error


def _is_file(path: Path) -> bool:
    """Tell whether `path` is a regular file, not a pipe, say, which would block when opened."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file can have
        return False
