"""Pages, the tool that reads their blocks, and what is there before each begins."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path += [str(FOLDER), str(FOLDER.parents[1] / "tools")]
