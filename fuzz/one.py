"""Fuzzes one target: python fuzz/one.py TARGET [FILE...] [-OPTION=VALUE of libFuzzer...].

With files it runs each of them once: what was found is tried again, and its traceback read.
"""

import importlib
import sys
from pathlib import Path

import atheris
from run import PATHS

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Import the target with its coverage counted, and run it until libFuzzer's options say."""
    name, *options = sys.argv[1:]
    sys.path += [str(ROOT / folder) for folder in PATHS]
    with atheris.instrument_imports(include=["inferd", "inferd_convert"]):
        module = importlib.import_module(f"targets.{name}")

    def run(data: bytes) -> None:
        module.target(data)

    atheris.Setup([sys.argv[0], *options], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
