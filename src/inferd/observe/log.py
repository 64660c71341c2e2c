"""The one logger, "inferd": set up when a server process starts, changeable while it runs.

A program that builds a Server in its own process keeps its own logging: nothing is set up at
import, and records go to the standard library's logger of that name.
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from inferd.config.options.log import LOG_FORMATS, LogChange, LogSettings
from inferd.errors import InferdError, InvalidRequest, Unsupported
from inferd.observe.allowed import AllowedFolder, open_log

LOGGER = logging.getLogger("inferd")
_SPANS_LOGGER = logging.getLogger("opentelemetry")  # reports collectors that do not answer


class Log:
    """The log of a server: its settings, and the one way to change them.

    `folder` is where clients may put the log file. Until `open` is called, the logger belongs to
    the program the server runs in, and clients can read the settings but not change them.
    """

    def __init__(self, settings: LogSettings, folder: AllowedFolder | None = None) -> None:
        self.settings = settings
        self._start_file = settings.file
        # Without a folder: clients may set levels, but name no file.
        self._folder = folder or AllowedFolder(None, "--log-directory")
        self._is_open = False
        self._listeners: list[logging.Handler] = []

    def open(self) -> None:
        """Take over the logger. Raises OSError when the log file cannot be opened."""
        self._set_up(self.settings)
        self._is_open = True

    def listen(self, listener: logging.Handler) -> None:
        """Let `listener` have every record that is logged, whatever the settings are, and become.

        A log that belongs to the program gives it what the program's own settings let through.
        """
        self._listeners.append(listener)
        if self._is_open:
            _add([listener], self.settings)
        # The program's own handlers stay; removing or adding real ones would change what it prints.
        else:
            LOGGER.addHandler(_Guest(listener))

    def ignore(self, listener: logging.Handler) -> None:
        """Let `listener` have no more records."""
        self._listeners.remove(listener)
        for logger in (LOGGER, _SPANS_LOGGER):
            for handler in list(logger.handlers):
                if handler is listener or getattr(handler, "listener", None) is listener:
                    logger.removeHandler(handler)

    @contextmanager
    def changing(self, change: LogChange) -> Iterator[None]:
        """Change settings at the end of the context, unless that is left by an exception.

        Raises, when it begins, InvalidRequest for an invalid value, Unsupported for a change that
        clients may not make, InferdError when the log file cannot be opened.
        """
        settings = self._changed(change)
        if settings == self.settings:
            yield
            return
        if not self._is_open:
            raise Unsupported("the log belongs to the program this server runs in; change it there")
        try:
            # Opened before anything changes: a file that cannot be opened leaves the log as it is.
            handler = self._handler(settings)
        except OSError as error:
            name = settings.file.name if settings.file else ""
            raise InferdError(f"log_file '{name}' cannot be opened: {error.strerror}") from error
        try:
            # What others have to agree to, in other processes, happens here; then nothing can fail
            # any more.
            yield
        except BaseException:
            handler.close()
            raise
        # Into the old log, where somebody who looks for it finds why it ends.
        LOGGER.info("a client changes the log settings: %s", _difference(self.settings, settings))
        _install([handler, *self._listeners], settings)
        self.settings = settings

    def follow(self, settings: LogSettings) -> None:
        """Take over settings that another process of the server has; an error is logged."""
        if settings == self.settings:
            return
        try:
            self._set_up(settings)
        except OSError as error:
            LOGGER.error("the log stays as it is here: %s", error.strerror)  # noqa: TRY400
        else:
            self.settings = settings

    def reopen(self) -> None:
        """Close the log file and open it again by name, as log rotation may have renamed it."""
        try:
            self._set_up(self.settings)
        except OSError as error:
            LOGGER.error("the log file cannot be opened again: %s", error.strerror)  # noqa: TRY400
        else:
            LOGGER.info("the log was opened again")

    def _set_up(self, settings: LogSettings) -> None:
        """Set up the logger by `settings`, replacing any earlier setup.

        Raises OSError when the file cannot be opened; the logger is then unchanged.
        """
        _install([self._handler(settings), *self._listeners], settings)

    def _handler(self, settings: LogSettings) -> logging.Handler:
        """Return the handler that `settings` ask for. Raises OSError as `_set_up` does."""
        if settings.file is None:
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
        else:
            # The operator's own file may be a pipe or /dev/stdout; what clients name must be a
            # plain file.
            by_client = settings.file != self._start_file
            handler = _File(open_log(settings.file, is_named_by_client=by_client))
        handler.setFormatter(_JsonLines() if settings.format == "json" else _Text(settings.format))
        return handler

    def _changed(self, change: LogChange) -> LogSettings:
        new = {
            field.name: value
            for field in fields(change)
            if (value := getattr(change, field.name)) is not None
        }
        # Triton's words for a wrong format, which clients know.
        if new.get("format", LOG_FORMATS[0]) not in LOG_FORMATS:
            raise InvalidRequest(
                f"invalid argument for log_format, got: {new['format'][:100]}, expected one of "
                f"{', '.join(LOG_FORMATS)}"
            )
        if "file" in new:
            new["file"] = self._file_named(new["file"])
        return replace(self.settings, **new)

    def _file_named(self, name: str) -> Path | None:
        """Return the file that `name` means: one that the settings have shown, or another."""
        for known in (self.settings.file, self._start_file):
            # Settings show a file's name without its folder, so the same name given back means the
            # same file.
            if name == (known.name if known else ""):
                return known
        # "" stands for standard error, as in Triton; only where clients may choose at all.
        if not name and self._folder.path is not None:
            return None
        return self._folder.place("log_file", name)


def _install(handlers: Sequence[logging.Handler], settings: LogSettings) -> None:
    """Let these have all records that `settings` want, and no others."""
    # First: two handlers at once would write lines twice.
    close_log()
    _add(handlers, settings)
    level = min(_wanted_levels(settings), default=logging.CRITICAL)
    # OpenTelemetry's own INFO and DEBUG are about its inner life.
    for logger, least in ((LOGGER, level), (_SPANS_LOGGER, max(level, logging.WARNING))):
        logger.setLevel(least)
        # The root logger may have handlers of libraries, which would repeat each line.
        logger.propagate = False


def _add(handlers: Sequence[logging.Handler], settings: LogSettings) -> None:
    wanted = _wanted_levels(settings)
    for handler in handlers:
        # A filter for each level: Triton's switches are independent (errors off, info on), where
        # logging's level is a threshold.
        handler.filters[:] = [lambda record: record.levelno in wanted]
        for logger in (LOGGER, _SPANS_LOGGER):
            logger.addHandler(handler)


def close_log() -> None:
    """Close what Log.open opened, and reset the logger to Python's defaults."""
    for logger in (LOGGER, _SPANS_LOGGER):
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def _difference(old: LogSettings, new: LogSettings) -> str:
    pairs = [(field.name, getattr(new, field.name)) for field in fields(new)]
    return ", ".join(f"{name} {value}" for name, value in pairs if value != getattr(old, name))


def _wanted_levels(settings: LogSettings) -> frozenset[int]:
    switches = {
        # Triton has levels of verbosity, logging one DEBUG; any turns it on.
        logging.DEBUG: settings.verbose > 0,
        logging.INFO: settings.info,
        logging.WARNING: settings.warning,
        logging.ERROR: settings.error,
        logging.CRITICAL: settings.error,
    }
    return frozenset(level for level, on in switches.items() if on)


def printable(text: str) -> str:
    """Return `text` with line breaks and control characters escaped: names may hold them."""
    if text.isprintable():
        return text
    # As in Python's own notation, so that what was escaped can be told.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _indented(line: str) -> str:
    """Return `line` so that it cannot pass for the beginning of a log record."""
    return f"  {printable(line)}"


class _File(logging.StreamHandler[TextIO]):
    """A handler that also closes its file."""

    def close(self) -> None:
        # A thread may have fetched this handler just before its removal: leave it a stream.
        if file := self.setStream(sys.stderr):
            file.close()
        super().close()


class _Guest(logging.Handler):
    """Gives records to a `listener`, in the log of a program that seems to have no handler more.

    Where a program has none, Python writes warnings to stderr; so it does with this one alone.
    """

    def __init__(self, listener: logging.Handler) -> None:
        super().__init__()
        self.listener = listener

    def emit(self, record: logging.LogRecord) -> None:
        self.listener.handle(record)
        # Python's handler for programs that have configured none (logging.lastResort).
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record.name):
            last.handle(record)

    def _is_alone(self, name: str) -> bool:
        """Tell whether no other handler gets the records of a logger; of guests the first does."""
        logger: logging.Logger | None = logging.getLogger(name)
        found: list[logging.Handler] = []
        while logger is not None:
            found += logger.handlers
            logger = logger.parent if logger.propagate else None
        return found[:1] == [self] and all(isinstance(one, _Guest) for one in found)


class _Text(logging.Formatter):
    """Time, level and message; "ISO8601" gives the time in UTC with a T and a Z.

    The message is one line, unless the caller passes `extra={"keeps_lines": True}`, as for a
    traceback.
    """

    def __init__(self, style: str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        self._is_utc = style == "ISO8601"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        keeps_lines = getattr(record, "keeps_lines", False)
        # A client's text with a line break must not be able to forge a record.
        first, *rest = record.message.rstrip().split("\n") if keeps_lines else [record.message]
        record.message = printable(first) + "".join(f"\n{_indented(line)}" for line in rest)
        return super().formatMessage(record)

    # The name is logging's.
    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(_indented, super().formatException(ei).splitlines()))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        if self._is_utc:
            return _utc(record)
        # Local time, as operators read it beside other logs of the machine.
        created = datetime.fromtimestamp(record.created).astimezone()
        return created.replace(tzinfo=None).isoformat(" ", "milliseconds")


class _JsonLines(logging.Formatter):
    """One JSON object per line: time, level, message, source, pid, and error for a traceback.

    The caller can add fields with `extra={"fields": {...}}`.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json  # only this format needs it

        line = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "source": f"{record.module}:{record.lineno}",
            "pid": os.getpid(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # A field that JSON does not know must not cost the line.
        return json.dumps(line, ensure_ascii=False, default=str)


def _utc(record: logging.LogRecord) -> str:
    created = datetime.fromtimestamp(record.created, UTC)
    return created.replace(tzinfo=None).isoformat("T", "milliseconds") + "Z"
