"""Puts the digit classifier of examples/digits/models beside those of the other platforms.

    python examples/platforms/to_onnx.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`.
"""

import shutil
import sys
from pathlib import Path

import digits

MODELS = ("digits_onnx",)
FILE = Path(__file__).parents[1] / "digits" / "models" / "digits" / "1" / "model.onnx"


def export(repository: Path) -> None:
    """Copy the model."""
    shutil.copy(FILE, digits.place(repository, MODELS[0], "model.onnx"))


if __name__ == "__main__":
    export(Path(sys.argv[1]))
