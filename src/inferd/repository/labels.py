"""Label files: what the indices of an output mean, one label a line (V2, Classification)."""

from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig

MAX_LABEL_BYTES = 16 << 20
"""A million labels, which is as many as can be asked for, are shorter than this."""


def read_labels(folder: Path, config: ModelConfig) -> dict[str, list[bytes]]:
    """Return the labels of the outputs of the model in `folder` that have any, by output name.

    Raises InvalidConfig for a file that is missing, too large, or not inside the folder.
    """
    return {
        output.name: _lines(folder, output.label_filename, f"model '{config.name}'")
        for output in config.output
        if output.label_filename
    }


def _lines(folder: Path, filename: str, model: str) -> list[bytes]:
    file = folder / filename
    if not _is_file(file):
        msg = f"{model}: label_filename names '{filename}', and there is no such file"
        raise InvalidConfig(msg)
    if not file.resolve().is_relative_to(folder.resolve()):
        msg = f"{model}: label_filename '{filename}' leads out of the model's folder"
        raise InvalidConfig(msg)
    try:
        with file.open("rb") as source:
            content = source.read(MAX_LABEL_BYTES + 1)
    except OSError as error:
        msg = f"{model}: '{filename}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error
    if len(content) > MAX_LABEL_BYTES:
        msg = f"{model}: '{filename}' is larger than the {MAX_LABEL_BYTES} bytes labels may have"
        raise InvalidConfig(msg)
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return [line.removesuffix(b"\r") for line in lines]


def _is_file(path: Path) -> bool:
    """Tell whether there is such a file, not a pipe, say, whose opening waits for a writer."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file can have
        return False
