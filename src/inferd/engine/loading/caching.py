"""Response caching: used where the server has a cache and the model's configuration wants it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from inferd.cache.local import LocalStore
from inferd.cache.scheduler import CachingScheduler
from inferd.cache.store import Store
from inferd.config.options.cache import CacheSettings, LocalCacheSettings
from inferd.engine.loading.ensemble import find_steps
from inferd.engine.loading.lookup import code_folder
from inferd.engine.serving.identity import Identity, random_identity, shared_identity
from inferd.engine.serving.served import Served
from inferd.repository.layout import FoundModel
from inferd.repository.watch import NO_MARKS, Marks, content_digest, marks_of

Find = Callable[[str, str], Served]
"""Returns what serves a model's version now (Catalog.find)."""

Look = tuple[Marks, Marks]
"""The marks of a model's files, and of the Python-based backend that runs it."""

NOT_LOOKED: Look = (NO_MARKS, NO_MARKS)
"""For a model whose files do not matter."""


def open_store(settings: CacheSettings | None) -> Store | None:
    """Return the cache `settings` ask for, if any. Raises InvalidConfig if a package is missing."""
    if settings is None:
        return None
    if isinstance(settings, LocalCacheSettings):
        return LocalStore(settings.size_bytes)
    from inferd.cache.redis import RedisStore

    return RedisStore(settings)


class Keeper:
    """Has the answers of versions cached in `store`; `find` finds the steps of ensembles.

    `directory` is where Python-based backends are: answers depend on their code, too.
    """

    def __init__(self, store: Store, find: Find | None, directory: Path | None = None) -> None:
        self._store = store
        self._find = find
        self._directory = directory

    def look(self, model: FoundModel) -> Look:
        """Return the marks of the files of `model`, which is about to be loaded."""
        # Marks of all files take a walk through the folder, which only a shared cache needs.
        if not self._store.is_shared:
            return NOT_LOOKED
        code = code_folder(model.config, self._directory)
        return marks_of(model.folder, model.lone_file), marks_of(code) if code else NO_MARKS

    def take(
        self, served: Served, model: FoundModel, looked: Look, steps: Sequence[Served] = ()
    ) -> None:
        """Have the answers of `served`, just loaded from `model`, cached if it wants that.

        `looked` is what `look` returned before the load; `steps` serve an ensemble's steps.
        """
        served.identity = self._identity(served, model, looked, steps)
        if not served.config.response_cache:
            return
        # In the thread that loads: reading all bytes of the files takes seconds for gigabytes.
        served.identity.settle()
        served.run_by(
            # In front of the model's own scheduler, so that a hit waits in no queue.
            CachingScheduler(
                served.scheduler,
                self._store,
                served.identity,
                served.responses.check,
                served.counts,
            )
        )
        served.is_cached = True

    def _identity(
        self, served: Served, model: FoundModel, looked: Look, steps: Sequence[Served]
    ) -> Identity:
        is_shared = self._store.is_shared
        read = partial(self._read, served, model, looked) if is_shared else random_identity
        config, find = served.config, self._find
        if config.ensemble_scheduling is None or find is None:
            identity = Identity(served.name, read)
        else:
            identity = Identity(
                served.name,
                read,
                [step.identity for step in steps],
                # As of each request: a step that is replaced changes what the ensemble answers.
                lambda: [step.identity for step in find_steps(config, find)],
            )
        if not is_shared:
            identity.settle()
        return identity

    def _read(self, served: Served, model: FoundModel, looked: Look) -> bytes | None:
        config, version = served.config, int(served.version)
        if config.ensemble_scheduling is not None:
            return shared_identity(config, version, b"")
        files = content_digest(model.folder, version, model.lone_file)
        if (code := code_folder(model.config, self._directory)) is not None:
            files += content_digest(code, version, code)
        # If the files have changed since the model was loaded, they do not identify it.
        is_same = self.look(model) == looked
        return shared_identity(config, version, files) if is_same else None
