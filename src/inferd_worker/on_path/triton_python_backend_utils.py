"""For processes that a model spawns: they import its model.py, and this module with it.

In the worker process itself, main.py registers the interface under this name.
"""

import sys

from inferd_worker import api

sys.modules[__name__] = api
