"""Sizes: how much memory models may need, and how long reading them takes.

What a framework makes of a file is known only once it is loaded; that it needs no less than its
weights is known before.
"""

import os
from collections.abc import Sequence

from inferd.check.model import ModelCheck
from inferd.repository.tree import entries_of

READ_BYTES_PER_S = 200_000_000
"""What is read of a disk over a network; local ones are quicker."""

_LONG_S = 60
_GIB = 1 << 30


def size_bytes(check: ModelCheck) -> int:
    """Return the size of the files of a model's versions that would be served."""
    model = check.model
    if model.file is not None:
        places = [model.file]
    else:
        places = [model.folder / str(version) for version in model.versions]
    # Without what Python and editors leave behind.
    return sum(one.size for place in places for one in entries_of(place))


def memory_bytes() -> int:
    """Return the memory of this machine, 0 if it cannot be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # AttributeError is Windows'
        return 0


def add_size_warnings(checks: Sequence[ModelCheck], memory: int) -> None:
    """Warn of models that need more than the `memory` there is, alone or together, or much time."""
    served = [check for check in checks if not check.is_refused]
    sizes = [size_bytes(check) for check in served]
    for check, size in zip(served, sizes, strict=True):
        if memory and size > memory:
            text = f"its files have {_shown(size)}, this machine has {_shown(memory)} of memory"
            check.add_warning(text, "memory", fix="serve it on a machine with more memory")
        elif size / READ_BYTES_PER_S >= _LONG_S:
            text = (
                f"its files have {_shown(size)}: reading them takes about "
                f"{size / READ_BYTES_PER_S:.0f} s at {READ_BYTES_PER_S / 1e6:.0f} MB/s"
            )
            check.add_warning(text, "memory", fix="let probes of its start wait longer than that")
    total = sum(sizes)
    # One that is too large alone has its own warning.
    if memory and total > memory and max(sizes) <= memory:
        text = (
            f"the files of all models have {_shown(total)}, this machine has {_shown(memory)} "
            f"of memory"
        )
        fix = "load only some: --model-control-mode=explicit"
        # The largest model, since a finding has to be about one.
        served[sizes.index(max(sizes))].add_warning(text, "memory", fix=fix)


def _shown(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
