"""Record: a base for classes of fields that are written out by hand, since requests create them.

mypyc compiles a written `__init__` to a C function, and the interpreter reads `__slots__` fastest;
generated classes have neither (docs/decisions/0010-compiled.md).
"""

from typing import ClassVar


class Record:
    """Compares and shows its fields; `_fields` names them, in the order of `__init__`."""

    __slots__ = ()

    _fields: ClassVar[tuple[str, ...]] = ()

    def asdict(self) -> dict[str, object]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        """Compare type and fields."""
        return type(self) is type(other) and self.asdict() == other.asdict()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type["Record"], tuple[object, ...]]:
        """Return class and arguments for a copy: compiled objects cannot be filled from outside."""
        return type(self), tuple(getattr(self, name) for name in self._fields)

    def __repr__(self) -> str:
        """Show the fields as arguments."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.asdict().items())
        return f"{type(self).__name__}({shown})"
