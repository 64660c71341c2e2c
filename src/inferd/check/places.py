"""Places: finds the models at the paths that were given, as the server would, and checks each."""

import ast
import difflib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from inferd.check.ensemble import check_ensembles
from inferd.check.finding import Finding
from inferd.check.foreign import add_foreign_notes, archives_at
from inferd.check.model import ModelCheck
from inferd.check.surprises import add_size_warnings, add_surprises, memory_bytes
from inferd.check.version import check_version
from inferd.errors import InferdError, InvalidConfig
from inferd.repository.layout import FoundModel
from inferd.repository.local import Reading, is_app
from inferd.repository.repositories import Repositories

_MOST_NAMES = 5


class Checked(NamedTuple):
    """What was found at all paths, sorted by place, in how many models.

    `unread` are the names of models whose files tell more only to their frameworks.
    """

    findings: list[Finding]
    model_count: int
    unread: list[str]


def check_model(path: Path, reading: Reading, name: str = "") -> ModelCheck:
    """Return the check of one model: that at `path`, or the one called `name` in the repository.

    Raises InvalidConfig when there is no such model, or more than one.
    """
    with _warnings(path, []):
        repositories = Repositories([path], reading)
        places = repositories.places()
        if not name and len(places) != 1:
            names = ", ".join(list(places)[:_MOST_NAMES]) or "none"
            msg = f"'{path}' has {len(places)} models ({names}), name the one that is meant"
            raise InvalidConfig(msg)
        model = repositories.find(name or next(iter(places)))
        if model is None:
            near = difflib.get_close_matches(name, places, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise InvalidConfig(f"there is no model '{name}' at '{path}'{hint}")
        return _checked(model, reading)


def _checked(model: FoundModel, reading: Reading) -> ModelCheck:
    check = ModelCheck(model, reading.gpu_count)
    for version in model.versions:
        check_version(check, version)
    return check


def check_paths(
    paths: Sequence[Path],
    reading: Reading,
    attempt: Callable[[ModelCheck, int, int], None] | None = None,
) -> Checked:
    """Check the models at `paths`, which one server would serve.

    `attempt` is called with each model in which nothing is wrong so far, its number from 1, and how
    many there are: it may load it, and add what it finds.
    """
    findings: list[Finding] = []
    models = []
    good = [path for path in paths if _is_sound(path, reading, findings)]
    with _warnings(Path(), []):  # they have been told of each path
        try:
            models = Repositories(good, reading).find_all()
        except InferdError as error:
            findings.append(Finding("error", "layout", error.message, good[0]))
        checks = [_checked(model, reading) for model in models]
        # Before ensembles, which are checked against what their models are found to be.
        if attempt is not None:
            sound = [check for check in checks if not check.is_refused]
            for number, check in enumerate(sound, 1):
                attempt(check, number, len(sound))
        check_ensembles({check.model.name: check for check in checks})
        for check in checks:
            if not check.is_refused:
                add_surprises(check)
                add_foreign_notes(check)
        add_size_warnings(checks, memory_bytes())
    for check in checks:
        findings += check.findings
    unread = [one.model.name for one in checks if not (one.is_refused or one.is_complete)]
    return Checked(sorted(findings, key=lambda one: one.order), len(checks), unread)


def _is_sound(path: Path, reading: Reading, findings: list[Finding]) -> bool:
    """Add what is wrong with a path itself; tell whether the models there can be found."""
    if is_app(path):
        _check_app(path, findings)
        return False
    archives = list(archives_at(path))
    findings += archives
    with _warnings(path, findings):
        try:
            places = Repositories([path], reading).places()
        except InferdError as error:
            # It would only say that there is no model; the archive says why.
            if not archives:
                findings.append(Finding("error", "layout", error.message, path))
            return False
    if not places and not archives:
        text = "there is no model here, so that a server of it alone is never ready"
        fix = f"give each model a folder in it: {path.name}/NAME/1/model.onnx"
        findings.append(Finding("error", "layout", text, path, fix=fix))
    return True


def _check_app(path: Path, findings: list[Finding]) -> None:
    """Add what is wrong with a Python file that defines models, as far as it need not be run."""
    try:
        # Not imported: a check runs no code.
        ast.parse(path.read_bytes())
    except SyntaxError as error:
        place = path, error.lineno or 0, error.offset or 0
        findings.append(Finding("error", "file", f"this is no Python: {error.msg}", *place))
    # NUL bytes.
    except (OSError, ValueError) as error:
        findings.append(Finding("error", "file", f"this is no Python: {error}", path))
    else:
        text = (
            "a Python file that defines models, which are known only when it is run: inferd serve"
        )
        findings.append(Finding("note", "file", text, path))


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
