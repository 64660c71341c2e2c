"""The command `inferd`: finds the verb, and imports only what that verb needs."""

import importlib
import sys
from collections.abc import Sequence

import inferd
from inferd.errors import InferdError

VERBS = ("serve", "key")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `inferd ARGUMENTS` and return its exit code: 0, 1 (it failed) or 2 (it was misspelled).

    Each verb is a module of inferd.cli of that name, with a `run(arguments) -> int`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb = words[0] if words else "--help"
    if verb in ("--version", "-V"):
        sys.stdout.write(f"inferd {inferd.__version__}\n")
        return 0
    if verb in ("--help", "-h", "help"):
        from inferd.cli import help as texts

        sys.stdout.write(texts.MAIN)
        return 0
    if verb not in VERBS:
        sys.stderr.write(f"inferd: there is no {verb!r}; see inferd --help\n")
        return 2
    try:
        code: int = importlib.import_module(f"inferd.cli.{verb}").run(words[1:])
    except InferdError as error:
        sys.stderr.write(f"inferd {verb}: {error.message}\n")
        return 1
    return code
