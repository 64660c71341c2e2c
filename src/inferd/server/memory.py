"""How the process treats its memory once its models are loaded."""

import ctypes
import gc
import os
from collections.abc import Mapping

# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's malloc.h
_MMAP_BYTES = 32 << 20
_RETAINED_BYTES = 64 << 20


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> None:
    """Have the C library keep the memory that large requests freed for the next ones.

    Otherwise it returns such memory to the system, and the next request to use it faults on every
    page: hundreds of faults per request, where requests of some megabytes are under way together.
    The limits set here are those that glibc adopts by itself when the first block of 32 MB is
    freed. With another C library or allocator, or where `environ` configures malloc, this does
    nothing. Call it once the models are loaded: memory that loading freed is not worth keeping.
    """
    # Somebody has made up their mind.
    if "GLIBC_TUNABLES" in environ or any(name.startswith("MALLOC_") for name in environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError is Windows'
        return
    mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES)


def spare_loaded_objects() -> None:
    """Have Python's garbage collector pass over every object that there is now.

    With 1,000 models a collection of all objects holds the event loop for 200 ms. Call it once the
    models are loaded: most of what there is then stays, and is freed all the same when its last
    reference goes, but not if it is part of a cycle.
    """
    # First: what is garbage now would never be looked at again.
    gc.collect()
    gc.freeze()
