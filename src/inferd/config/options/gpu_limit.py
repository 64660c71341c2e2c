"""GPU limits: how full a GPU's memory may be before a load, from --model-load-gpu-limit."""

import re
from collections.abc import Mapping, Sequence

from inferd.errors import InvalidConfig

GpuLimits = Mapping[int, float]
"""By GPU, the share of its memory, from 0 to 1, that may be in use."""

# No sign and no exponent, and so neither NaN nor infinity.
_LIMIT = re.compile(r"([0-9]{1,4}):([0-9]{0,9}\.?[0-9]{0,9})")


def read_gpu_limits(texts: Sequence[str]) -> GpuLimits:
    """Return the limits set by the values of --model-load-gpu-limit, each DEVICE:FRACTION.

    Raises InvalidConfig.
    """
    limits: dict[int, float] = {}
    for text in texts:
        found = _LIMIT.fullmatch(text)
        share = found[2] if found else ""
        if not found or share in ("", ".") or float(share) > 1:
            msg = f"--model-load-gpu-limit is '{text}', expected DEVICE:FRACTION, such as 0:0.9"
            raise InvalidConfig(msg)
        limits[int(found[1])] = float(share)
    return limits
