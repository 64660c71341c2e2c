"""Which answers are kept: where the server has a response cache and the configuration wants it."""

import hashlib
import os
from collections.abc import Callable, Sequence

from inferd.cache.local import LocalStore
from inferd.cache.scheduler import CachingScheduler, Identity
from inferd.cache.store import Store
from inferd.config.cache import CacheSettings
from inferd.engine.ensemble import find_steps
from inferd.engine.served import Served
from inferd.errors import InferdError

_TOKEN_BYTES = 16


def open_store(settings: CacheSettings | None) -> Store | None:
    """Return the cache that `settings` ask for."""
    return LocalStore(settings.size_bytes) if settings is not None else None


def keep_answers(
    served: Served, store: Store | None, find: Callable[[str, str], Served] | None
) -> None:
    """Have the answers of a version that has just loaded kept in `store`, if it wants that.

    Those of an ensemble hang on what serves its steps, too, which `find` (Catalog.find) finds.
    """
    if store is None:
        return
    served.identity = _identity(served, find)
    if served.config.response_cache:
        served.scheduler = CachingScheduler(
            served.scheduler, store, served.identity, served.check_response, served.counts
        )
        served.is_cached = True


def _identity(served: Served, find: Callable[[str, str], Served] | None) -> Identity:
    token, config = os.urandom(_TOKEN_BYTES), served.config
    if config.ensemble_scheduling is None or find is None:
        return lambda: token

    def of_ensemble() -> bytes | None:
        try:
            steps = find_steps(config, find)
        except InferdError:
            return None
        return _joined(token, [step.identity() for step in steps])

    return of_ensemble


def _joined(token: bytes, identities: Sequence[bytes | None]) -> bytes | None:
    digest = hashlib.sha256(token)
    for identity in identities:
        if identity is None:
            return None
        digest.update(len(identity).to_bytes(1, "little") + identity)
    return digest.digest()
