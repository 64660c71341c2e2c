"""Loads: what a client asks of the model repository, and the attempt to do it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class LoadRequest(msgspec.Struct, frozen=True):
    """A model to be loaded or reloaded (Model Repository extension).

    `config`, JSON in the layout of ModelConfig, replaces the model's config.pbtxt. `files`,
    contents by path below the model's folder, replace all its files, and need a `config`.
    `folder`, anywhere in a repository, is where the model is if not in a folder of its name.
    """

    model: str
    config: str | None = None
    files: Mapping[str, bytes | memoryview] = {}
    folder: Path | None = None


class UnloadRequest(msgspec.Struct, frozen=True):
    """A model to be unloaded; with `unload_dependents`, models loaded only for its sake as well."""

    model: str
    unload_dependents: bool = False


class Attempt:
    """One load, or one change of instances."""

    def __init__(self) -> None:
        # A plain bool: one thread sets it, others read it, and reading it late does no harm.
        self._is_given_up = False

    def is_wanted(self) -> bool:
        """Tell, in any thread, whether the attempt should go on."""
        return not self._is_given_up

    def give_up(self) -> None:
        """Make the attempt end when it next checks `is_wanted`."""
        self._is_given_up = True
