"""For the processes that a model starts afresh: they import its model.py, and this with it.

In the worker itself, which runs the model, main.py has put the interface in this one's place.
"""

import sys

from inferd_worker import api  # type: ignore[import-not-found]  # this folder is in sys.path there

sys.modules[__name__] = api
