"""The command `inferd`: finds the verb, and imports only what that verb needs."""

import contextlib
import os
import platform
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import inferd
from inferd.cli.command_line.foreign import is_program
from inferd.cli.command_line.streams import OutputFailed, drop_output, prepare_streams
from inferd.cli.verbs import VERBS, run_verb
from inferd.errors import InferdError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `inferd ARGUMENTS` and return its exit code: 0, 1 (it failed) or 2 (wrong arguments).

    What begins with the program of another server, or was started as one, serves. Without
    `arguments` this is the process's main function: Ctrl-C ends it with code 130 until the verb
    handles it itself.
    """
    if arguments is None:
        prepare_streams()
    # Only if nobody has set another handler, as a program that calls `main` may have.
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_interrupted)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and is_program(sys.argv[0]):  # a link to inferd, as images may have it
        words.insert(0, sys.argv[0])
    if words and is_program(words[0]):
        words.insert(0, "serve")
    verb = words[0] if words else "--help"
    try:
        code = _run(verb, words[1:])
        sys.stdout.flush()  # here, where it is no surprise that nobody reads any more
    except BrokenPipeError:  # who reads, such as head, has what it wanted
        drop_output()
        return 1
    except OutputFailed as error:
        drop_output()
        sys.stderr.write(f"inferd {verb}: cannot write to standard output: {error.strerror}\n")
        return 1
    return code


def _run(verb: str, words: Sequence[str]) -> int:
    if verb in ("--version", "-V"):
        sys.stdout.write(f"inferd {inferd.__version__} ({_build()})\n")
        return 0
    if verb in ("--help", "-h", "help"):
        from inferd.cli import help as texts

        sys.stdout.write(texts.MAIN)
        return 0
    if verb not in VERBS:
        # The most frequent slip: a path without the verb.
        hint = f"to serve it: inferd serve {verb}" if os.path.exists(verb) else "see inferd --help"
        sys.stderr.write(f"inferd: there is no command {verb!r}; {hint}\n")
        return 2
    try:
        return run_verb(verb, words)
    except InferdError as error:
        sys.stderr.write(f"inferd {verb}: {error.message}\n")
        return 1


def _build() -> str:
    """Return what kind of wheel runs here, and on what: docs/guide/install.md."""
    from inferd import record  # one of the modules that are compiled, and the smallest

    # A module that is compiled has the file of an extension.
    compiled = "not compiled" if str(record.__file__).endswith(".py") else "compiled"
    return f"{compiled}, {platform.python_implementation()} {platform.python_version()}"


def _end_interrupted(number: int, _frame: FrameType | None) -> NoReturn:
    # A KeyboardInterrupt could come in the middle of an import, where C code may print or drop it.
    with contextlib.suppress(OSError):
        os.write(2, b"inferd: interrupted\n")
    os._exit(128 + number)
