"""LoadRequest and UnloadRequest: what a client asks of the model repository."""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class LoadRequest(msgspec.Struct, frozen=True):
    """A model to be loaded, or loaded anew (Model Repository extension).

    `config`, JSON in the layout of ModelConfig, stands in for the model's config.pbtxt. `files`,
    contents by path below the model's folder, stand in for all its files, and need a `config`.
    `folder` is where the model lies if that is no folder of its name: somewhere in a repository.
    """

    model: str
    config: str | None = None
    files: Mapping[str, bytes | memoryview] = {}
    folder: Path | None = None


class UnloadRequest(msgspec.Struct, frozen=True):
    """A model to be unloaded; `unload_dependents` too, those loaded only because it was."""

    model: str
    unload_dependents: bool = False
