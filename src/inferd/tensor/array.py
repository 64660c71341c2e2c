"""Array: a NumPy array whose shape and dtype are known at run time alone."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
