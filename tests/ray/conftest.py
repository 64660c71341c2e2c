"""Tests of what places replicas with Ray: a simulated cluster, and a real one where Ray is."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for simulated.py

collect_ignore = [] if find_spec("ray") else ["test_cluster.py"]
