"""Paths in a configuration that must not lead out of a model's folder."""

from pathlib import PurePosixPath, PureWindowsPath


def is_inside(name: str) -> bool:
    """Tell whether the path `name` stays inside the folder it starts from, on any platform."""
    # On Linux a backslash is a letter, but the repository may be served from Windows, or from a
    # share with it.
    ways = (PurePosixPath(name), PureWindowsPath(name))
    return not any(way.anchor or ".." in way.parts for way in ways)
