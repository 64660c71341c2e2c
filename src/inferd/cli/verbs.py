"""The verbs of the command `inferd`; each is a module here, imported when it is run."""

import importlib
import sys
from collections.abc import Sequence

VERBS = (
    "serve", "infer", "bench", "tune", "models", "load", "unload", "stats", "check", "config",
    "route", "status", "reload", "deploy", "places", "key", "convert", "completion",
    "replay",
)  # fmt: skip

_OF_MODELS = ("models", "load", "unload", "stats")
"""The verbs of one module, which is given the verb, too."""

_ELSEWHERE = {"places": "cluster.places", "replay": "remote.replay"}
"""The verbs whose module lies in a folder beside it."""


def run_verb(verb: str, words: Sequence[str]) -> int:
    """Run `inferd VERB WORDS`, and return its exit code. Raises InferdError."""
    name = "models" if verb in _OF_MODELS else _ELSEWHERE.get(verb, verb)
    # Imported by name, so each verb loads only what it needs: `inferd --help` has no numpy.
    module = importlib.import_module(f"inferd.cli.{name}")
    # A verb that reads its words itself has a text for this; the others have argparse's.
    if hasattr(module, "HELP") and ("--help" in words or "-h" in words):
        sys.stdout.write(module.HELP)
        return 0
    code: int = module.run([verb, *words] if verb in _OF_MODELS else words)
    return code
