"""Checks one model as the server would load it, without its framework.

Each step is the server's own: what raises an error there is a finding here. Where the server stops
at the first error, the rules that tell it are asked for all of theirs.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from inferd.check.config_file import ConfigFile, read_config
from inferd.check.finding import Finding
from inferd.config.checks import (
    CONFIG_FILE,
    config_complaints,
    instance_complaints,
)
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import decode_pbtxt
from inferd.config.rules.complaint import Complaint
from inferd.config.rules.tensors import io_complaints
from inferd.errors import InferdError, InvalidConfig
from inferd.repository.contents import read_limited
from inferd.repository.layout import FoundModel, derived, version_folders
from inferd.repository.local import MAX_CONFIG_BYTES

_NAMED = re.compile(r"\A(?:model '.*?'(?:, [^:']*)?|[^\s:]+\.pbtxt): ")


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

    def add_error(self, error: InferdError, rule: str = "", fix: str = "") -> None:
        """Add what the server says when it refuses the model."""
        path = error.path if isinstance(error, InvalidConfig) else ()
        rule = rule or ("config" if path else "layout")
        text = _NAMED.sub("", error.message.replace(f"{self.model.folder}/", ""), count=1)
        if self.file is not None and (path or rule != "layout"):
            self._add(self.file.finding(rule, text, path, self.model.name, fix))
        else:
            place = self.model.file or self.model.folder
            self._add(Finding("error", rule, text, place, model=self.model.name, fix=fix))

    def add_complaints(self, complaints: Iterable[Complaint]) -> None:
        """Add what the rules say of the configuration."""
        for complaint in complaints:
            error = InvalidConfig(complaint.text, complaint.path)
            self.add_error(error, "config")

    def add_warning(self, text: str, rule: str = "surprise", **said: str | tuple[str, ...]) -> None:
        """Add a warning; `path` is that of the field it is about, `fix` what to do."""
        path, fix = said.get("path", ()), str(said.get("fix", ""))
        if self.file is not None and path:
            found = self.file.finding(rule, text, tuple(path), self.model.name, fix)
            place = found.file, found.line, found.column
        else:
            place = self.model.file or self.model.folder, 0, 0
        self._add(Finding("warning", rule, text, *place, self.model.name, fix))

    def _add(self, finding: Finding) -> None:
        if all(one.text != finding.text for one in self.findings):
            self.findings.append(finding)

    def _read(self) -> None:
        model = self.model
        is_readable = self._read_file(model.folder / CONFIG_FILE)
        if model.error is not None and is_readable:
            self.add_error(model.error)
        config = model.config or (self._assumed() if is_readable else None)
        if config is None:
            return
        self.add_complaints(config_complaints(config))
        self.add_complaints(instance_complaints(config))
        self.add_complaints(self._io_complaints(config))
        self.config = model.config

    def _read_file(self, path: Path) -> bool:
        """Read config.pbtxt, if it is there; tell whether anything else can be said of it."""
        if not path.is_file():
            return True
        place = f"{self.model.folder.name}/{CONFIG_FILE}"
        try:
            text = decode_pbtxt(read_limited(path, MAX_CONFIG_BYTES, place), place)
        except InvalidConfig as error:
            text = _NAMED.sub("", error.message, count=1)
            line, column = error.line, error.column
            name = self.model.name
            self._add(Finding("error", "syntax", text, path, line, column, name))
            return False
        self.file, found = read_config(path, text, self.model.name)
        for one in found:
            self._add(one)
        return not found

    def _assumed(self) -> ModelConfig | None:
        """Return the configuration of a model that was refused, as far as it can be told."""
        if self.file is None or self.file.config is None:
            return None
        config, name = self.file.config, self.model.name
        with suppress(InferdError, OSError):
            available, _ = version_folders(self.model.folder)
            config = derived(config, next(iter(available.values()), None), name)
        return normalised(replace(config, name=""), name, self.gpu_count)

    def _io_complaints(self, config: ModelConfig) -> Iterator[Complaint]:
        """Yield what is wrong with inputs and outputs, whatever the model's file will add."""
        is_whole = bool(config.input and config.output)
        for complaint in io_complaints(config):
            is_own = complaint.path[0] in ("input", "output") and "reshape" not in complaint.path
            if is_whole or is_own:
                yield complaint
