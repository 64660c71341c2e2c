"""Progress: says how far a fetch is: bars where a terminal is, else lines in the log."""

import logging
import sys
import time
from typing import Any, Self

log = logging.getLogger("inferd.repository")

_EVERY_S = 10.0


class LoggedProgress:
    """A line at the beginning, and one every ten seconds."""

    def __init__(self) -> None:
        self._name = ""
        self._said_s = 0.0

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def begin(self, name: str, total: int) -> None:
        """Log that `name` is fetched, which has `total` bytes, 0 if that is not known."""
        self._name, self._said_s = name, time.monotonic()
        log.info("fetching '%s'%s", name, f", {size_text(total)}" if total else "")

    def advance(self, done: int, total: int) -> None:
        """Log now and then how many bytes of it are there, and of how many, 0 if unknown."""
        now_s = time.monotonic()
        if now_s - self._said_s < _EVERY_S:
            return
        self._said_s = now_s
        of = f" of {size_text(total)}" if total else ""
        log.info("fetching '%s': %s%s", self._name, size_text(done), of)


class BarProgress:
    """Bars with rich, which are taken away at the end."""

    def __init__(self) -> None:
        from rich import progress as bars
        from rich.console import Console

        console: Any = Console(stderr=True)
        # A process that is ended meanwhile shows no cursor again.
        console.show_cursor = lambda show=True: False
        self._bars: Any = bars.Progress(
            # Names of files with brackets would be read as markup.
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.DownloadColumn(),
            bars.TransferSpeedColumn(),
            bars.TimeRemainingColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: Any = None

    def __enter__(self) -> Self:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bars away."""
        self._bars.stop()

    def begin(self, name: str, total: int) -> None:
        """Add a bar."""
        # rich shows a bar that swings if the total is None; 0 would be 100 %.
        self._task = self._bars.add_task(name, total=total or None)

    def advance(self, done: int, total: int) -> None:
        """Move the bar."""
        self._bars.update(self._task, completed=done, total=total or None)


def progress() -> LoggedProgress | BarProgress:
    """Return what fits where the process runs."""
    # pythonw and some services have no stderr at all.
    if sys.stderr is not None and sys.stderr.isatty():
        try:
            # An extra (inferd[terminal]): servers in containers have nobody who looks at bars.
            import rich.progress  # noqa: F401 - looked for
        except ImportError:
            return LoggedProgress()
        return BarProgress()
    return LoggedProgress()


def size_text(size: int) -> str:
    """Return a number of bytes in the unit that fits."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
