"""The compiler's class attributes, which do nothing in the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: object) -> object:
        """Return a decorator that does nothing."""
        return lambda kind: kind
