"""Places: finds the models at the paths that were given, as the server would, and checks each."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from inferd.check.finding import Finding
from inferd.check.model import ModelCheck
from inferd.errors import InferdError
from inferd.repository.local import Reading
from inferd.repository.repositories import Repositories


class Checked(NamedTuple):
    """What was found at all paths, sorted by place, in how many models."""

    findings: list[Finding]
    model_count: int


def check_paths(paths: Sequence[Path], reading: Reading) -> Checked:
    """Check the models at `paths`."""
    findings: list[Finding] = []
    checks: list[ModelCheck] = []
    for path in paths:
        with _warnings(path, findings):
            try:
                repositories = Repositories([path], reading)
                models = repositories.find_all()
            except InferdError as error:
                findings.append(Finding("error", "layout", error.message, path))
                continue
        checks += [ModelCheck(model, reading.gpu_count) for model in models]
        if not models:
            text = "there is no model here, so a server of it is never ready"
            fix = f"give each model a folder: {path.name}/NAME/1/model.onnx"
            findings.append(Finding("error", "layout", text, path, fix=fix))
    for check in checks:
        findings += check.findings
    return Checked(sorted(findings, key=lambda one: one.order), len(checks))


@contextmanager
def _warnings(path: Path, findings: list[Finding]) -> Iterator[None]:
    """Turn what the server would log as a warning about `path` into findings."""
    log = logging.getLogger("inferd")
    handler = _Taking(path, findings)
    was_passed_on = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = was_passed_on


class _Taking(logging.Handler):
    def __init__(self, path: Path, findings: list[Finding]) -> None:
        super().__init__(logging.WARNING)
        self._path = path
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._findings.append(Finding("warning", "layout", text, self._path))
