"""Models that replicas serve: one that answers at once, and one that takes its time."""

IDENTITY = 'backend: "identity" max_batch_size: 0 '
IDENTITY += 'input { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '
IDENTITY += 'output { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '
SLOW = """
import threading
import inferd, numpy as np
from numpy.typing import NDArray

@inferd.model
def slow(x: NDArray[np.int32]) -> NDArray[np.int32]:
    threading.Event().wait(0.05)
    return x
"""


def write_models(folder):
    """Write both, and return the folder."""
    (folder / "same/1").mkdir(parents=True)
    (folder / "same/config.pbtxt").write_text(IDENTITY)
    (folder / "slow.py").write_text(SLOW)
    return folder
