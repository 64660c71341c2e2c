"""Names: which texts can be that of a model, and which paths stay inside of its folder."""

from pathlib import PurePosixPath, PureWindowsPath

# The backslash on Linux, too: a repository may be copied to Windows, and clients put names into
# paths of their own.
_SEPARATORS = frozenset("/\\\0")


def is_model_name(name: str) -> bool:
    """Tell whether `name` can be that of a model: not blank or hidden, printable, no separators."""
    return (
        bool(name.strip())
        # Folders such as .git and .ipynb_checkpoints lie in repositories and are no models.
        and not name.startswith(".")
        and not has_separators(name)
        # Names are written into logs, where a line break would begin a forged line.
        and name.isprintable()
    )


def has_separators(name: str) -> bool:
    """Tell whether `name` would be a path rather than the name of a folder."""
    return bool(set(name) & _SEPARATORS)


def is_inside(name: str) -> bool:
    """Tell whether the path `name` stays inside the folder it starts from, on any platform."""
    # On Linux a backslash is a letter, but the repository may be served from Windows, or from a
    # share with it.
    ways = (PurePosixPath(name), PureWindowsPath(name))
    return not any(way.anchor or ".." in way.parts for way in ways)
