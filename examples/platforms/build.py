"""Writes the digit classifier for each framework that is installed here.

    python examples/platforms/build.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`.
"""

import sys
from importlib import import_module
from pathlib import Path

import digits

if __name__ == "__main__":
    for name in digits.exporters():
        import_module(name).export(Path(sys.argv[1]))
