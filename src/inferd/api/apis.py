"""Apis: which calls a port offers."""

from typing import NamedTuple

from inferd.api.call import ApiCall
from inferd.api.trtis.trtis import Trtis
from inferd.api.v2.calls import CALLS


class Apis(NamedTuple):
    """The calls of V2, and the old API if it is offered."""

    calls: tuple[ApiCall, ...] = CALLS
    trtis: Trtis | None = None


V2_ALONE = Apis()
