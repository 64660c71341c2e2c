"""inferd reload: has a server replace its processes, one after the other."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.cli.running import FoundServer
    from inferd.fleet.status import ControlRequest, Replacement

HELP = """\
inferd reload [--port PORT] [--timeout SECONDS]

Replaces the processes of a server that has several (inferd serve --workers N), one after the
other, as SIGUSR2 does: a new one loads the models, takes over, and the old one finishes what is
under way. No request is lost. The options of the server stay as they are; code, packages and, in a
server that does not poll for them, models are read anew.

--port PORT        the server that has this port; needed if there are several servers
--timeout SECONDS  how long to wait for the end (default 600); the server goes on after that

The exit code is 0 when all processes have been replaced, and 1 if a new one does not start. Those
that were not replaced then go on serving.
"""

TIMEOUT_S = 600
_LOOK_S = 0.1


def run(arguments: Sequence[str]) -> int:
    """Replace the processes. Return 0, 1 if that failed, or 2 for wrong arguments."""
    from inferd.cli.running import read_words, running_servers

    try:
        words = read_words(arguments, ("--port", "--timeout"))
    except InvalidConfig as error:
        sys.stderr.write(f"inferd reload: {error.message}\nSee inferd reload --help.\n")
        return 2
    servers = running_servers(words.get("--port"))
    if len(servers) > 1:
        ports = [str(port) for one in servers for port in list(one.status.ports.values())[:1]]
        sys.stderr.write(
            f"inferd reload: there are {len(servers)} servers, choose one with --port "
            f"({', '.join(ports)})\n"
        )
        return 2
    return _reload(servers[0], words.get("--timeout", TIMEOUT_S))


def _reload(server: "FoundServer", timeout_s: float) -> int:
    from inferd.fleet.status import ControlRequest, ReplacementState

    pid, until_s = server.status.pid, time.monotonic() + timeout_s
    try:
        # The answer has the number of the replacement, by which it is told from a later one.
        last = _replacement(server, ControlRequest("reload"))
        number, count, shown = last.number, last.process_count, 0
        _say(f"replacing {count} processes of the server with pid {pid}")
        while True:
            for done in range(shown + 1, last.replaced_count + 1):
                _say(f"{done} of {count} replaced")
            shown = last.replaced_count
            # Another has begun since, so ours was done.
            if last.number != number or last.state is ReplacementState.DONE:
                return 0
            if last.state is ReplacementState.FAILED:
                return _fail("a new process did not start; the server's log says why")
            if time.monotonic() > until_s:
                return _fail(f"not done within {timeout_s} s; the server goes on with it")
            time.sleep(_LOOK_S)
            last = _replacement(server, ControlRequest("status"))
    except InvalidConfig as error:
        return _fail(error.message)
    except OSError as error:
        return _fail(f"the server with pid {pid} has ended, or does not answer: {error}")


def _replacement(server: "FoundServer", request: "ControlRequest") -> "Replacement":
    """Return how far the replacement is after `request`. Raises InvalidConfig and OSError."""
    answer = server.ask(request)
    if answer.error or answer.status is None or answer.status.replacement is None:
        raise InvalidConfig(answer.error or "the server does not tell how far it is")
    return answer.status.replacement


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _fail(text: str) -> int:
    sys.stderr.write(f"inferd reload: {text}\n")
    return 1
