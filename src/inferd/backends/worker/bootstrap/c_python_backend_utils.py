"""The other name of triton_python_backend_utils, which see."""

import sys

from inferd_worker import api  # type: ignore[import-not-found]  # this folder is in sys.path there

sys.modules[__name__] = api
