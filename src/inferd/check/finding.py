"""Finding: what a check of a model has found, and where."""

from pathlib import Path
from typing import Literal

import msgspec

Level = Literal["error", "warning", "note"]

RULES = {
    "syntax": "config.pbtxt cannot be read",
    "config": "a field of config.pbtxt is wrong",
    "layout": "files do not lie as a model repository has them",
    "file": "the model's file cannot be served, or is another than the configuration says",
    "ensemble": "the models of an ensemble do not fit together",
    "load": "the model does not load",
    "surprise": "what is served may surprise whoever wrote it",
    "memory": "the model may need more memory than this machine has",
    "package": "a package that runs the model is not installed here",
    "foreign": "the folder is that of another server",
}
"""The kinds of findings, by their short names, which filters in scripts may rely on."""


class Finding(msgspec.Struct, frozen=True):
    """One finding: `text` says what is wrong and what was expected, `fix` what to do, if known.

    `file` is the file it is about, or the folder; `line` and `column` count from 1, 0 is unknown.
    An "error" is something that `inferd serve` would refuse the model for, a "warning" may
    surprise, and a "note" is good to know.
    """

    level: Level
    rule: str
    text: str
    file: Path
    line: int = 0
    column: int = 0
    model: str = ""
    fix: str = ""

    @property
    def order(self) -> tuple[str, int, int, bool]:
        """What findings are sorted by: place, errors first."""
        # An error comes before a warning about the same place: False sorts first.
        return str(self.file), self.line, self.column, self.level != "error"
