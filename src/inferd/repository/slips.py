"""Slips: what lies in a model's folder instead of what was expected, in words for its owner.

Looked for only when a model cannot be read or its file is missing.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from inferd.config.checks import CONFIG_FILE
from inferd.config.platform import PLATFORMS, platform_of_file
from inferd.repository.tree import is_noise

MOST_SLIPS = 3
"""The most slips that one error tells."""

_MOST_LISTED = 1000  # of a folder's entries
_MOST_SHOWN = 60  # characters of a name
_POINTER = b"version https://git-lfs.github.com/spec/"
_MOST_POINTER_BYTES = 1024  # Git LFS's own limit
_SAVED_MODEL = "saved_model.pb"
_USUAL = tuple(platform.filename for platform in PLATFORMS if platform.filename)


def found_instead(
    folder: Path, version_folder: Path | None, wanted: str, ignored: Sequence[str] = ()
) -> str:
    """Return what was found in a model's folder and how to mend it, "" if nothing tells.

    `version_folder` is where the model file is looked for, None if there is none; `wanted` is its
    name, "" for that of any platform. `ignored` are complaints about folders that are no versions.
    """
    found = [*ignored, *_beside(folder)]
    if version_folder is not None and version_folder.is_dir():
        found += _inside(version_folder, wanted)
    return "; ".join(found[:MOST_SLIPS])


def pointer_instead(place: Path) -> str:
    """Return "; " and which file in or at `place` is a pointer of Git LFS, "" if none is.

    A clone without Git LFS has such pointers, small texts, in place of large files.
    """
    try:
        files = [place] if place.is_file() else sorted(islice(place.rglob("*"), _MOST_LISTED))
        for file in files:
            is_small = file.is_file() and file.stat().st_size <= _MOST_POINTER_BYTES
            if is_small and file.read_bytes().startswith(_POINTER):
                name = shown(file.name)
                return f"; '{name}' is a pointer of Git LFS, get the file with: git lfs pull"
    except OSError:  # what cannot be read has been complained of
        pass
    return ""


def _beside(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        name = entry.name
        if name.lower().startswith("config.pb") and name != CONFIG_FILE and entry.is_file():
            yield f"found '{shown(name)}', but the configuration is called '{CONFIG_FILE}'"
        elif name in (*_USUAL, _SAVED_MODEL) or (
            # Python files beside the version folders are usual: code that all versions import.
            platform_of_file(name.lower()) and entry.suffix != ".py"
        ):
            yield (
                # Below the model's folder, as the other places: that of a model whose files a
                # client sent has a name that the client never saw.
                f"found '{shown(name)}' in the model's folder, but it belongs in a version "
                "folder: 1/"
            )


def _inside(folder: Path, wanted: str) -> list[str]:
    entries = _entries(folder)
    if not entries:
        return [f"{folder.name}/ is empty"]
    if found := [text for entry in entries if (text := _misplaced(entry, wanted))]:
        return found
    names = ", ".join(f"'{shown(entry.name)}'" for entry in entries[:MOST_SLIPS])
    more = f" and {len(entries) - MOST_SLIPS} more" if len(entries) > MOST_SLIPS else ""
    return [f"{folder.name}/ holds {names}{more}"]


def _misplaced(entry: Path, wanted: str) -> str:
    """Return what is wrong with an entry of a version folder, "" if that cannot be told."""
    name, version = entry.name, entry.parent.name
    found = f"found '{version}/{shown(name)}', but"
    if name == CONFIG_FILE:
        return f"{found} it belongs beside the version folders"
    if name == _SAVED_MODEL:
        return f"{found} it belongs, with what lies beside it, in {version}/model.savedmodel/"
    platform = platform_of_file(name.lower())
    usual = wanted or (platform.filename if platform else "")
    if usual and name.lower() == usual.lower():
        return f"{found} it must be spelled '{usual}'"
    if platform is not None and platform == platform_of_file(usual):
        return f"{found} it must be called '{usual}', or default_model_filename have its name"
    if entry.is_dir():
        deeper = (one for one in ((wanted,) if wanted else _USUAL) if (entry / one).exists())
        if inner := next(deeper, ""):
            return f"found '{version}/{shown(name)}/{inner}', but it belongs in {version}/ itself"
    return ""


def _entries(folder: Path) -> list[Path]:
    """Return the first entries of `folder` in the order of their names, none if it is not there."""
    try:
        # Cut before it is sorted: a folder may have millions of files,
        # and this only helps with a text.
        return sorted(
            islice((one for one in folder.iterdir() if not is_noise(one.name)), _MOST_LISTED)
        )
    except OSError:
        return []


def shown(name: str) -> str:
    """Return the name of a file or folder for a text: escaped if it is no UTF-8, and not long."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")[:_MOST_SHOWN]
