"""Hints for the compiler and the type checker, which the interpreter ignores."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # typing has `override` from Python 3.12 on; typing_extensions is no dependency of the server.
    from mypy_extensions import mypyc_attr as mypyc_attr
    from typing_extensions import override as override
else:

    def mypyc_attr(**_: Any) -> Any:
        """Return a decorator that does nothing."""
        return lambda kind: kind

    def override(method: Any) -> Any:
        """Return `method`, which has its docstring from the class that first defines it."""
        return method
