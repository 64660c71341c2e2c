"""Record: a base for classes of fields that are written out by hand, since requests create them.

mypyc compiles a written `__init__` to a C function, and attributes to the fields of a C struct;
generated classes have neither (docs/decisions/0010-compiled.md).
"""

from collections.abc import Callable
from typing import Any, ClassVar


class Record:
    """Compares, shows and copies its fields: what `__init__` takes, or `_fields` where given."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def asdict(self) -> dict[str, object]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in fields_of(type(self))}

    def __eq__(self, other: object) -> bool:
        """Compare type and fields."""
        return type(self) is type(other) and self.asdict() == other.asdict()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Callable[..., "Record"], tuple[object, ...]]:
        """Return function and arguments for a copy: compiled objects have no `__dict__`."""
        return type(self), tuple(self.asdict().values())

    def __repr__(self) -> str:
        """Show the fields as arguments."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.asdict().items())
        return f"{type(self).__name__}({shown})"


def fields_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a class of records."""
    # Compiled, a class knows its attributes instead of its annotations and its code.
    attributes: tuple[str, ...] = getattr(kind, "__mypyc_attrs__", ())
    found: tuple[str, ...] = kind._fields or tuple(
        name for name in attributes if not name.startswith("_")
    )
    if found or (found := tuple(kind.__annotations__)):
        return found
    code = kind.__init__.__code__
    found = code.co_varnames[1 : code.co_argcount]
    return found
