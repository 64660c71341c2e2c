"""A repository with a model that takes long enough to be timed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

CONFIG = """
backend: "identity"
max_batch_size: 4
dynamic_batching { }
input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }
parameters { key: "execute_delay_ms" value { string_value: "20" } }
"""


@pytest.fixture
def repository(tmp_path):
    """A repository with the model `slow`, whose runs take 20 ms."""
    (tmp_path / "slow/1").mkdir(parents=True)
    (tmp_path / "slow/config.pbtxt").write_text(CONFIG)
    return tmp_path
