"""Checks one model as the server would load it, without its framework.

Each step is the server's own: what raises an error there is a finding here. Where the server stops
at the first error, the rules that tell it are asked for all of theirs.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from inferd.check.finding import Finding, Level
from inferd.config.checks import CONFIG_FILE, config_complaints, instance_complaints
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import decode_pbtxt, parse_pbtxt
from inferd.config.positions import Position, Positions
from inferd.config.rules.complaint import Complaint
from inferd.config.rules.tensors import io_complaints
from inferd.core.offline import BadCode
from inferd.errors import FieldPath, InferdError, InvalidConfig
from inferd.repository.contents import MAX_CONFIG_BYTES, read_limited
from inferd.repository.layout import FoundModel, derived, version_folders

_MOST_ERRORS = 20
_MOST_REREAD = 1 << 18  # characters: a longer text, which nobody writes by hand, is read once
_PREFIX = re.compile(r"\A(?:model '[^']*', )?[^\s:]*:(?:\d+:\d+:)? ")


class ConfigFile(NamedTuple):
    """A configuration at `path`, whose text has `positions`; `config` is None if it is wrong."""

    path: Path
    positions: Positions
    config: ModelConfig | None


def read_config(path: Path, text: str, model: str) -> tuple[ConfigFile, list[Finding]]:
    """Return the configuration in `text`, and what is wrong with the text, at most 20 errors.

    The text is read by the parser that serves it. That one stops at the first error: the field with
    the error is blanked out, and the rest read again.
    """
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


_FILE = re.compile(r"[^\s:,]+\.pbtxt: ")


class ModelCheck:
    """What is found in one model; `config` is what would be served, None if nothing would be.

    It is as complete as the files tell without the framework, wholly if it `is_complete`.
    """

    def __init__(self, model: FoundModel, gpu_count: int = 0) -> None:
        self.model = model
        self.gpu_count = gpu_count
        self.findings: list[Finding] = []
        self.config: ModelConfig | None = None
        self.is_complete = False
        self.file: ConfigFile | None = None
        self._read()

    @property
    def is_refused(self) -> bool:
        """Whether the server would not serve the model."""
        return any(one.level == "error" for one in self.findings)

    def says(self, field: str) -> bool:
        """Tell whether config.pbtxt has a field, at its top."""
        return self.file is not None and self.file.positions.of((field,)) is not None

    def complete(self, config: ModelConfig, *, is_complete: bool) -> None:
        """Take `config` as what would be served."""
        self.config = config
        self.is_complete = is_complete

    @contextmanager
    def noting(self, rule: str) -> Iterator[None]:
        """Add what is raised in this context, where the server would refuse the model."""
        try:
            yield
        except BadCode as error:
            place = error.file, error.line, error.column
            self.add(Finding("error", "file", error.message, *place, self.model.name))
        except InferdError as error:
            self.add_error(error, rule)
        except OSError as error:
            self.add_problem(f"a file of it cannot be read: {error.strerror}", rule)

    def add_error(self, error: InferdError, rule: str = "") -> None:
        """Add what the server says when it refuses the model."""
        path = error.path if isinstance(error, InvalidConfig) else ()
        # Paths are shown beside the text, and relative.
        text = self._bare(error.message.replace(f"{self.model.folder}/", ""))
        self.add_problem(text, rule or ("config" if path else "layout"), path)

    def add_complaints(self, complaints: Iterable[Complaint], rule: str = "config") -> None:
        """Add what the rules say of the configuration."""
        for complaint in complaints:
            self.add_problem(complaint.text, rule, complaint.path)

    def add_problem(self, text: str, rule: str, path: FieldPath = ()) -> None:
        """Add an error about the field at `path`, or about the model as a whole."""
        self.add(self._finding("error", rule, text, path))

    def add_warning(
        self, text: str, rule: str = "surprise", path: FieldPath = (), fix: str = ""
    ) -> None:
        """Add a warning about the field at `path`, or about the model as a whole."""
        self.add(self._finding("warning", rule, text, path, fix))

    def add_note(self, text: str, rule: str) -> None:
        """Add what is good to know of the model as a whole."""
        self.add(self._finding("note", rule, text))

    def io_complaints(self, config: ModelConfig) -> Iterator[Complaint]:
        """Yield what is wrong with inputs and outputs, whatever the model's file may add."""
        is_whole = self.is_complete or bool(config.input and config.output)
        for complaint in io_complaints(config):
            is_own = complaint.path[0] in ("input", "output") and "reshape" not in complaint.path
            # Fields whose rules compare with what the file has yet to fill in are checked once that
            # is known.
            if is_whole or is_own:
                yield complaint

    def _bare(self, text: str) -> str:
        """Return the text of an error without the model and the file, which are beside it."""
        rest = text.removeprefix(f"model '{self.model.name}'")
        if rest != text and rest[:2] in (": ", ", "):
            text = rest[2:]
        found = _FILE.match(text)
        return text[found.end() :] if found else text

    def _finding(
        self, level: Level, rule: str, text: str, path: FieldPath = (), fix: str = ""
    ) -> Finding:
        place: tuple[Path, int, int] = self.model.file or self.model.folder, 0, 0
        position = self.file.positions.of(path) if self.file is not None else None
        # A field that is not in the text, and should be.
        if position is None and rule == "config":
            position = Position(1, 1)
        if self.file is not None and position is not None:
            place = self.file.path, *position
        return Finding(level, rule, text, *place, self.model.name, fix)

    def add(self, finding: Finding) -> None:
        """Add a finding, unless it has been made before."""
        # Several steps find the same, and one version's complaint is the other's.
        if all(one.text != finding.text for one in self.findings):
            self.findings.append(finding)

    def _read(self) -> None:
        model = self.model
        is_readable = self._read_file(model.folder / CONFIG_FILE)
        # What cannot be read has been told of, with its line.
        if model.error is not None and is_readable:
            self.add_error(model.error)
        config = model.config or (self._assumed() if is_readable else None)
        if config is None:
            return
        # The server stops at its first; all rules are asked here.
        self.add_complaints(config_complaints(config))
        self.add_complaints(instance_complaints(config))
        self.add_complaints(self.io_complaints(config))
        # Not what was assumed: a model that was refused has none in force.
        self.config = model.config

    def _read_file(self, path: Path) -> bool:
        """Read config.pbtxt, if it is there; tell whether anything else can be said of it."""
        if not path.is_file():
            return True
        place = f"{self.model.folder.name}/{CONFIG_FILE}"
        try:
            text = decode_pbtxt(read_limited(path, MAX_CONFIG_BYTES, place), place)
        except InvalidConfig as error:
            text = self._bare(error.message)
            line, column = error.line, error.column
            name = self.model.name
            self.add(Finding("error", "syntax", text, path, line, column, name))
            return False
        self.file, found = read_config(path, text, self.model.name)
        for one in found:
            self.add(one)
        return not found

    def _assumed(self) -> ModelConfig | None:
        """Return the configuration of a model that was refused, as far as it can be told."""
        if self.file is None or self.file.config is None:
            return None
        config, name = self.file.config, self.model.name
        with suppress(InferdError, OSError):
            # One version tells: files have the same names in all.
            available, _ = version_folders(self.model.folder)
            config = derived(config, next(iter(available.values()), None), name)
        # `normalised` refuses a name that differs from the folder's, which was complained of.
        return normalised(replace(config, name=""), name, self.gpu_count)
