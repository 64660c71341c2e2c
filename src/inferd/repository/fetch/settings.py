"""FetchSettings: where fetched models are stored, and how much is fetched."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from inferd.config.options.option import BOOLEANS

MAX_BYTES = 200 << 30
MAX_FILES = 100_000
"""A model with more files is none: unpacking it would fill the disk with names."""


class FetchSettings(NamedTuple):
    """How models at URLs are fetched. With `is_offline` only what is in `folder` is served.

    `max_bytes` bounds one model, fetched and unpacked. `pins` is a folder in which the processes of
    one server note what they serve, so that all serve the same, None if there is one.
    """

    folder: Path
    is_offline: bool = False
    max_bytes: int = MAX_BYTES
    pins: Path | None = None


def fetch_settings(
    environ: Mapping[str, str],
    folder: str | None = None,
    *,
    is_offline: bool = False,
    max_bytes: int | None = None,
    pins: Path | None = None,
) -> FetchSettings:
    """Return the settings, with what is not given taken from variables of the environment."""
    folder = folder or environ.get("INFERD_FETCH_DIRECTORY")
    if not folder:
        home = environ.get("HOME") or "~"
        # The XDG base directory specification: what can be fetched again is a cache.
        cache = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
        folder = f"{cache}/inferd/models"
    says = BOOLEANS.get(environ.get("INFERD_OFFLINE", "").lower(), False)
    return FetchSettings(
        # Absolute now: workers and other processes of the server may run in another folder.
        Path(folder).expanduser().absolute(),
        is_offline or says,
        MAX_BYTES if max_bytes is None else max_bytes,
        pins,
    )
