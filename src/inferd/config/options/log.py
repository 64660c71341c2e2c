"""LogSettings: what is logged and how. LogChange: new values of some of them."""

from dataclasses import dataclass
from pathlib import Path

# The first two are Triton's words.
LOG_FORMATS = ("default", "ISO8601", "json")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and how; the names are those of Triton's logging extension.

    `file` None is standard error. `verbose` above 0 adds details (level DEBUG). The three
    booleans each switch one level, independently of the others.
    """

    format: str = "default"
    file: Path | None = None
    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True


@dataclass(frozen=True, slots=True)
class LogChange:
    """New values of some LogSettings; None leaves a setting as it is.

    `file` is a name given by a client, "" for standard error.
    """

    format: str | None = None
    file: str | None = None
    verbose: int | None = None
    info: bool | None = None
    warning: bool | None = None
    error: bool | None = None
