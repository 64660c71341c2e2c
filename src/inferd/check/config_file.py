"""ConfigFile: a model's config.pbtxt with everything that is wrong with its text, and places in it.

The text is read by the parser that serves it. That one stops at the first error: the field with the
error is blanked out, and the rest read again.
"""

import re
from pathlib import Path
from typing import NamedTuple

from inferd.check.finding import Finding
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_pbtxt
from inferd.config.positions import Position, Positions
from inferd.errors import InvalidConfig

_MOST_ERRORS = 20
_MOST_REREAD = 1 << 18  # characters: a longer text, which nobody writes by hand, is read once
_PREFIX = re.compile(r"\A(?:model '[^']*', )?[^\s:]*:(?:\d+:\d+:)? ")


class ConfigFile(NamedTuple):
    """A configuration at `path`, whose text has `positions`; `config` is None if it is wrong."""

    path: Path
    positions: Positions
    config: ModelConfig | None


def read_config(path: Path, text: str, model: str) -> tuple[ConfigFile, list[Finding]]:
    """Return the configuration in `text`, and what is wrong with the text, at most 20 errors."""
    whole = Positions(text)
    positions, found = whole, list[Finding]()
    blanks: list[int] = []
    config = None
    # Each round reads the whole text again, so their number and the text's length have limits.
    while len(blanks) < _MOST_ERRORS:
        try:
            config = parse_pbtxt(text, path.name)
            break
        except InvalidConfig as error:
            is_placed = bool(error.line)
            place = Position(error.line, error.column) if is_placed else positions.of(error.path)
            # An error after a block without an end is about how the rest was read.
            if positions.unclosed is not None and (place or (1, 1)) > positions.unclosed:
                found.append(_unclosed(path, error, positions.unclosed, model))
                break
            rest = positions.without(place if is_placed and place else error.path)
            # What a field lacks may be what was blanked out.
            if rest is None or not any(rest.begin < begin < rest.end for begin in blanks):
                found.append(_finding(path, error, place or Position(1, 1), model))
            if rest is None or rest.text == text or len(text) > _MOST_REREAD:
                break
            blanks.append(rest.begin)
            text = rest.text
            positions = Positions(text)
    # What was read of a text with blanks is not what it says.
    return ConfigFile(path, whole, None if found else config), found


def _unclosed(path: Path, error: InvalidConfig, place: Position, model: str) -> Finding:
    """Return the error of a block without an end: what it makes of the rest misleads."""
    said = _PREFIX.sub("", error.message, count=1)
    text = f"this block has no end, so that line {error.line} is read as a part of it: {said}"
    return Finding("error", "syntax", text, path, *place, model, "close it where it should end")


def _finding(path: Path, error: InvalidConfig, place: Position, model: str) -> Finding:
    text = _PREFIX.sub("", error.message, count=1)
    rule = "syntax" if error.line else "config"
    return Finding("error", rule, text, path, *place, model)
