"""Label files: the meanings of an output's indices, one label per line (V2, Classification)."""

from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.config.rules.complaint import within
from inferd.errors import InvalidConfig
from inferd.repository.contents import read_inside

MAX_LABEL_BYTES = 16 << 20
"""Enough for a million labels, the most that can be asked for."""


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
