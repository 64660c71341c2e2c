"""Errors that model.py raises and returns."""

from __future__ import annotations

import enum


def kind_of(value: object) -> str:
    """Return the type of `value` with its article, for error texts: a list, an int, None."""
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[:1] in tuple('aeiouAEIO') else 'a'} {name}"


class _ErrorCode(enum.IntEnum):
    """Why something failed, under Triton's names."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        # What str() of Triton's enum, made by pybind11, gives; models log it.
        return f"__ErrorCode.{self.name}"


class TritonError:
    """An error to be put into an InferenceResponse."""

    UNKNOWN = _ErrorCode.UNKNOWN
    INTERNAL = _ErrorCode.INTERNAL
    NOT_FOUND = _ErrorCode.NOT_FOUND
    INVALID_ARG = _ErrorCode.INVALID_ARG
    UNAVAILABLE = _ErrorCode.UNAVAILABLE
    UNSUPPORTED = _ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = _ErrorCode.ALREADY_EXISTS
    CANCELLED = _ErrorCode.CANCELLED

    def __init__(self, message: str, code: int = _ErrorCode.INTERNAL) -> None:
        self._message = _text(message)
        self._code = _ErrorCode(code)

    def code(self) -> _ErrorCode:
        """Return the error code, one of the constants of this class."""
        return self._code

    def message(self) -> str:
        """Return the text."""
        return self._message

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code})"


def _text(message: object) -> str:
    """Return a message as a str; models may pass bytes, as Triton's C++ module takes them."""
    if isinstance(message, (bytes, bytearray)):
        return message.decode(errors="replace")
    return str(message)


class TritonModelException(Exception):
    """Raised by a model, and in a model that misuses this interface."""


class WrongType(TritonModelException, TypeError):
    """An argument of the wrong type; also a TypeError, as Triton's module raises."""


def text_of(error: BaseException) -> str:
    """Return type and text of `error`; for a TritonModelException the text alone."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  even its __str__ fails
        return type(error).__name__
    if isinstance(error, TritonModelException):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
