"""The settings of --backend-config."""

from collections.abc import Sequence


def settings_of(backend: str, given: Sequence[str]) -> dict[str, str]:
    """Return the --backend-config settings of `backend`: its own, and those for all backends."""
    found = {}
    for text in given:
        owner, comma, setting = text.partition(",")
        name, _, value = (setting if comma else text).partition("=")
        if not comma or owner == backend:
            found[name] = value
    return found
