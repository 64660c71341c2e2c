"""CommandParser: reads the arguments of verbs whose options argparse explains."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """Its help is as wide as the terminal; its errors are two lines, or usage and error."""

    def __init__(
        self, program: str, description: str, epilog: str = "", *, says_usage: bool = False
    ) -> None:
        super().__init__(
            program,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # An abbreviation that works today would change its meaning with a new option.
            allow_abbrev=False,
        )
        self._says_usage = says_usage
        self._add: Callable[..., object] = self.add_argument

    def section(self, title: str) -> None:
        """Put the options that follow under a title of their own."""
        self._add = self.add_argument_group(title).add_argument

    def switch(self, names: str, about: str) -> None:
        """Add an option without a value."""
        self._add(*names.split(), action="store_true", help=about)

    def option(
        self,
        names: str,
        word: str,
        about: str,
        default: object = None,
        kind: Callable[[str], object] = str,
    ) -> None:
        """Add an option whose value is called `word` in the help."""
        self._add(*names.split(), metavar=word, default=default, type=kind, help=about)

    def repeated(self, names: str, word: str, about: str) -> None:
        """Add an option that may be given more than once."""
        self._add(*names.split(), action="append", default=[], metavar=word, help=about)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with code 2."""
        if self._says_usage:
            super().error(message)
        sys.stderr.write(f"{self.prog}: {message}\nSee {self.prog} --help.\n")
        raise SystemExit(2)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace | int:
        """Return the arguments, or the exit code where they were wrong or help was wanted."""
        try:
            return self.parse_args(arguments)
        except SystemExit as end:
            return int(end.code or 0)


def positive_seconds(text: str) -> float:
    """Return a time of more than 0 seconds."""
    value = number_of(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and less than 1e9")
    return value


def count_of(text: str) -> int:
    """Return a whole number of more than 0."""
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def model_of(text: str) -> str:
    """Return the name of a model, which a shell's variable that is not set is none of."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a model")
    return text


def seed_of(text: str) -> int:
    """Return a number that random ones begin with: whole, from 0 to 2^63 - 1."""
    value = _whole(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 2^63 - 1")
    return value


def number_of(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        # Else argparse would name the function that reads the word.
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is no whole number") from None
