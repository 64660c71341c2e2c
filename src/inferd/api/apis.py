"""Apis: which calls a port offers."""

from typing import NamedTuple

from inferd.api.call import ApiCall
from inferd.api.mount import Mount
from inferd.api.v2.calls import CALLS
from inferd.http.router import Route


class Apis(NamedTuple):
    """The calls of V2, the APIs beside it, and what else the HTTP port has: `routes`."""

    calls: tuple[ApiCall, ...] = CALLS
    mounts: tuple[Mount, ...] = ()
    routes: tuple[Route, ...] = ()


V2_ALONE = Apis()
