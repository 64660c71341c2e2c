"""Tests of what places replicas with Ray: a simulated cluster, and a real one where Ray is."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for simulated.py and others

from model_files import write_models

collect_ignore_glob = [] if find_spec("ray") else ["test_cluster*.py"]


@pytest.fixture(scope="session", name="models")
def written_models(tmp_path_factory):
    """A folder with both models."""
    return write_models(tmp_path_factory.mktemp("models"))
