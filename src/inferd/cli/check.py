"""inferd check: says what is wrong with model repositories, without a server."""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferd.cli.parser import positive_seconds

if TYPE_CHECKING:
    from inferd.check.model import ModelCheck
    from inferd.check.places import Checked

HELP = """\
inferd check PATH... [options]

Reads model repositories, or single models, as `inferd serve` would, and says what is wrong with
them: every finding with file, line and column of config.pbtxt, and what was expected. Nothing is
loaded without --load: models, frameworks and the code in a model.py stay untouched. It is checked
by the code that serves, so that an error here is an error there.

  --load                    also load each version for real, in a process of its own, and say how
                            long that took and how much memory it needs
  --load-timeout SECONDS    how long a load may take [600]
  --strict                  warnings count as errors
  --json                    findings as one JSON document: --format=json
  --format FORMAT           text (the usual one), json, sarif (SARIF 2.1.0, for code scanning) or
                            github (annotations of a GitHub workflow)
  --model-config-name NAME  read configs/NAME.pbtxt of the models that have it

An error is what the server would refuse, a warning what may surprise, a note what is good to
know. The exit code is 0 if there are no errors, 1 if there are some, and 2 for wrong arguments.
Colours need the package rich and a terminal; NO_COLOR turns them off.

  inferd check models/
  inferd check models/resnet --strict
  inferd check models --format=sarif > inferd.sarif
"""


def run(arguments: Sequence[str]) -> int:
    """Check models. Return 0, 1 if something is wrong with them, 2 for wrong arguments."""
    try:
        given = _parser().parse_args(arguments)
    # argparse ends the program for wrong arguments.
    except SystemExit:  # argparse has said what is wrong
        sys.stderr.write("See inferd check --help.\n")
        return 2
    from inferd.check.places import check_paths
    from inferd.cli.terminal import ProgressLine
    from inferd.engine.loading.load import gpu_count
    from inferd.errors import InferdError
    from inferd.repository.local import Reading
    from inferd.repository.repositories import fetched_path

    try:
        # Before anything is checked: what is fetched by URL may not be there.
        paths = [fetched_path(path) for path in given.path]
    except InferdError as error:
        sys.stderr.write(f"inferd check: {error.message}\n")
        return 2
    reading = Reading(given.model_config_name, gpu_count())
    attempt, progress = None, ProgressLine()
    if given.load:
        from inferd.check.trial import try_load

        def attempt(check: "ModelCheck", number: int, count: int) -> None:
            progress.show((number - 1) / count, f"loading {check.model.name}, {number} of {count}")
            try_load(check, reading, given.load_timeout)

        # Only with --load: KeyboardInterrupt ends the processes that load, in their `finally`.
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ends what has been started
    try:
        with progress:
            checked = check_paths(paths, reading, attempt)
    except KeyboardInterrupt:
        sys.stderr.write("inferd check: interrupted\n")
        return 130
    _write(given.format, checked)
    levels = {one.level for one in checked.findings}
    return 1 if "error" in levels or (given.strict and "warning" in levels) else 0


def _write(form: str, checked: "Checked") -> None:
    """Write what was found in the form that was asked for."""
    if form == "text":
        from inferd.check.report import write_text

        write_text(checked.findings, checked.model_count, sys.stdout, checked.unread)
        return
    from inferd.check.report import write_github, write_json, write_sarif

    writers = {"json": write_json, "sarif": write_sarif, "github": write_github}
    writers[form](checked.findings, checked.model_count, sys.stdout)


def _parser() -> argparse.ArgumentParser:
    usage = "inferd check PATH... [options]"
    parser = argparse.ArgumentParser(
        "inferd check", usage=usage, add_help=False, allow_abbrev=False
    )
    parser.add_argument("path", metavar="PATH", nargs="+")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--load-timeout", type=positive_seconds, default=600.0)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--model-config-name", default="")
    parser.add_argument("--format", choices=("text", "json", "sarif", "github"), default="text")
    parser.add_argument("--json", dest="format", action="store_const", const="json")
    return parser
