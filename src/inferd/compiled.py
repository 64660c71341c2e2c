"""Hints about a class for the compiler, which the interpreter ignores."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: Any) -> Any:
        """Return a decorator that does nothing."""
        return lambda kind: kind
