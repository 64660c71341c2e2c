"""The verbs of the command `inferd`; each is a module here, imported when it is run."""

import importlib
from collections.abc import Sequence

VERBS = (
    "serve", "infer", "bench", "tune", "models", "load", "unload", "stats", "check", "config",
    "route", "status", "reload", "deploy", "places", "key", "convert", "completion",
    "replay",
)  # fmt: skip

_OF_MODELS = ("models", "load", "unload", "stats")
"""The verbs of one module, which is given the verb, too."""

_ELSEWHERE = {"replay": "remote.replay"}
"""The verbs whose module lies in a folder beside it."""


def run_verb(verb: str, words: Sequence[str]) -> int:
    """Run `inferd VERB WORDS`, and return its exit code. Raises InferdError."""
    name = "models" if verb in _OF_MODELS else _ELSEWHERE.get(verb, verb)
    # Imported by name, so each verb loads only what it needs: `inferd --help` has no numpy.
    run = importlib.import_module(f"inferd.cli.{name}").run
    code: int = run([verb, *words] if verb in _OF_MODELS else words)
    return code
