"""Tests of the figures have models whose requests happen only in their counts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
