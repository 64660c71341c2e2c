"""Model names: which texts can be one."""

_SEPARATORS = frozenset("/\\\0")


def is_model_name(name: str) -> bool:
    """Tell whether `name` can be that of a model: not blank or hidden, printable, no separators."""
    return (
        bool(name.strip())
        and not name.startswith(".")
        and not has_separators(name)
        and name.isprintable()
    )


def has_separators(name: str) -> bool:
    """Tell whether `name` would be a path rather than the name of a folder."""
    return bool(set(name) & _SEPARATORS)
