"""Apis: which calls a port offers."""

from typing import NamedTuple

from inferd.api.call import ApiCall
from inferd.api.mount import Mount
from inferd.api.v2.calls import CALLS


class Apis(NamedTuple):
    """The calls of V2, and the APIs beside it."""

    calls: tuple[ApiCall, ...] = CALLS
    mounts: tuple[Mount, ...] = ()


V2_ALONE = Apis()
