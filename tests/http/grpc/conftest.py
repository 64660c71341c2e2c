"""What the tests of a folder share."""

import sys
from pathlib import Path

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))
