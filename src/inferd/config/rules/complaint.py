"""Complaint: one thing that is wrong with a configuration, and the field that says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from inferd.errors import FieldPath, InvalidConfig


class Complaint(NamedTuple):
    """What is wrong, in words, and the path of the field, as in config.pbtxt; () if it is none."""

    text: str
    path: FieldPath = ()

    def error(self, model: str, file: str) -> InvalidConfig:
        """Return the error for the configuration `file` of `model`."""
        return InvalidConfig(f"model '{model}', {file}: {self.text}", self.path)


class ConfigField(NamedTuple):
    """A field that may be complained of: how texts call it, and its path."""

    name: str
    path: FieldPath

    def complaint(self, text: str, *inner: str | int) -> Complaint:
        """Return that of the field, or of one that is `inner`; `text` goes on after the name."""
        return Complaint(f"{self.name}{text}", (*self.path, *inner))


@contextmanager
def within(*path: str | int) -> Iterator[None]:
    """Put `path` before that of an InvalidConfig that is raised in this context."""
    try:
        yield
    except InvalidConfig as error:
        error.path = (*path, *error.path)
        raise
