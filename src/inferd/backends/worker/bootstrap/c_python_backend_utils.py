"""Another name of triton_python_backend_utils; see there."""

import sys

from inferd_worker import api  # type: ignore[import-not-found]  # this folder is in sys.path there

sys.modules[__name__] = api
