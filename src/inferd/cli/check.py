"""inferd check: says what is wrong with model repositories, without a server."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HELP = """\
inferd check PATH... [options]

Reads model repositories, or single models, as `inferd serve` would, and says what is wrong with
them: every finding with file, line and column of config.pbtxt, and what was expected. Nothing is
loaded: models, frameworks and the code in a model.py stay untouched. It is checked by the code
that serves, so that an error here is an error there.

  --strict                  warnings count as errors
  --model-config-name NAME  read configs/NAME.pbtxt of the models that have it

An error is what the server would refuse, a warning what may surprise. The exit code is 0 if there
are no errors, 1 if there are some, and 2 for wrong arguments.

  inferd check models/
  inferd check models/resnet --strict
"""


def run(arguments: Sequence[str]) -> int:
    """Check models. Return 0, 1 if something is wrong with them, 2 for wrong arguments."""
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(HELP)
        return 0
    try:
        given = _parser().parse_args(arguments)
    except SystemExit:  # argparse has said what is wrong
        sys.stderr.write("See inferd check --help.\n")
        return 2
    from inferd.check.places import check_paths
    from inferd.check.report.text import write_text
    from inferd.engine.loading.load import gpu_count
    from inferd.repository.local import Reading

    reading = Reading(given.model_config_name, gpu_count())
    checked = check_paths([Path(path) for path in given.path], reading)
    write_text(checked.findings, checked.model_count, sys.stdout)
    levels = {one.level for one in checked.findings}
    return 1 if "error" in levels or (given.strict and levels) else 0


def _parser() -> argparse.ArgumentParser:
    usage = "inferd check PATH... [options]"
    parser = argparse.ArgumentParser("inferd check", usage=usage, add_help=False)
    parser.add_argument("path", metavar="PATH", nargs="+")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--model-config-name", default="")
    return parser
