"""Tests of the charts: `make test-deploy` runs them, in an environment that has what they need."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(ROOT / "tools")]

collect_ignore_glob = [] if find_spec("kubernetes_validate") else ["test_*.py"]


@pytest.fixture(scope="session")
def helms():
    """The programs that `make test-deploy` has unpacked: the newest helm, then an old one."""
    found = [Path(sys.prefix) / "helm" / name for name in ("helm-new", "helm-old")]
    assert all(one.is_file() for one in found), "make test-deploy installs them"
    return found


@pytest.fixture(scope="session")
def helm(helms):
    return helms[0]
