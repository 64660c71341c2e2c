"""Record: a class of a few fields that is written out, because one is made for each request.

A written `__init__` is what mypyc makes a C function of, and `__slots__` are what the interpreter
reads fastest; generated ones are neither (docs/decisions/0010-compiled.md).
"""

from typing import Any, ClassVar


class Record:
    """Fields that compare and show themselves; `_fields` names them, in the order of `__init__`."""

    __slots__ = ()

    _fields: ClassVar[tuple[str, ...]] = ()

    def asdict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        """Compare type and fields."""
        return type(self) is type(other) and self.asdict() == other.asdict()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type["Record"], tuple[Any, ...]]:
        """Return what makes a copy: compiled objects cannot be filled from outside."""
        return type(self), tuple(getattr(self, name) for name in self._fields)

    def __repr__(self) -> str:
        """Show the fields as arguments."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.asdict().items())
        return f"{type(self).__name__}({shown})"
