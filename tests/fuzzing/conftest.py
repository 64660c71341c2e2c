"""The targets of fuzz/, which need no fuzzer to be called."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "fuzz"), str(ROOT / "tests" / "http" / "h2")]
