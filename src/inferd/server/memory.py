"""What the process does with memory that requests have given back."""

import ctypes
import os
from collections.abc import Mapping

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's malloc.h
_MMAP_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> None:
    """Have the C library keep what large requests gave back for those that come next.

    Else it returns such memory to the system, and each of its pages is a fault when the next
    request takes it: hundreds for each, where requests of some megabytes are under way together.
    The limits set here are those that glibc learns by itself from the first block of 32 MB it is
    given back. With another C library or allocator, or where `environ` has a word on it, nothing
    happens. To be called when the models are loaded: what that took is not to be kept.
    """
    if "GLIBC_TUNABLES" in environ or any(name.startswith("MALLOC_") for name in environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
