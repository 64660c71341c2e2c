"""Given: texts and numbers from models, which may be bytes and numpy integers.

Triton's module is C++ and takes bytes as text: a model may be named by an element of a string
tensor.
"""

from __future__ import annotations

import operator
from typing import Any

from .error import TritonModelException, WrongType, kind_of


def text_given(value: object, what: str) -> str:
    """Return `value`, a str or bytes in UTF-8, as a str.

    Raises WrongType, or TritonModelException for invalid UTF-8.
    """
    if type(value) is str:
        return value
    # A subclass, such as numpy.str_, becomes a plain str, which the JSON encoder takes.
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, (bytes, bytearray)):
        raise WrongType(f"{what} is {kind_of(value)}, expected str")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise TritonModelException(f"{what} is no UTF-8: {error}") from None


def number_given(value: Any, what: str) -> int:
    """Return `value`, an integer of any type, as an int. Raises WrongType."""
    if type(value) is int:
        return value
    try:
        # index() takes NumPy's integers, and no floats, which int() would cut.
        return operator.index(value)
    except TypeError:
        raise WrongType(f"{what} is {kind_of(value)}, expected int") from None
