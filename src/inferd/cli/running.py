"""The running servers of several processes of this user, as the commands about them find them."""

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from inferd.errors import InvalidConfig
from inferd.fleet.status import ControlAnswer, ControlRequest, ServerStatus
from inferd.server.control import SUFFIX, ask
from inferd.server.folder import folders_of_servers


class FoundServer(NamedTuple):
    """A server, and the path of its control socket."""

    path: Path
    status: ServerStatus

    def ask(self, request: ControlRequest) -> ControlAnswer:
        """Return the server's answer. Raises OSError."""
        return ask(self.path, request)


def running_servers(port: int | None, *, with_models: bool = False) -> list[FoundServer]:
    """Return the servers of this user, or the one with this port, by their process numbers.

    One that does not answer is a line on standard error. Raises InvalidConfig if there is none.
    """
    try:
        folders = folders_of_servers(os.environ)
    except OSError as error:
        raise InvalidConfig(f"cannot look for servers: {error}") from error
    found = []
    # Control sockets lie in folders that only this user can enter.
    for path in sorted(path for folder in folders for path in folder.glob(f"*{SUFFIX}")):
        try:
            answer = ask(path, ControlRequest("status", with_models))
        except (ConnectionRefusedError, FileNotFoundError):  # left by a server that was killed
            continue
        except OSError as error:
            sys.stderr.write(f"the server at {path} does not answer: {error}\n")
            continue
        if answer.status is None:
            sys.stderr.write(f"the server at {path}: {answer.error}\n")
        elif port in (None, *answer.status.ports.values()):
            found.append(FoundServer(path, answer.status))
    if not found:
        msg = "no server of several processes is running (inferd serve --workers N)"
        msg += "" if port is None else f" that has port {port}"
        raise InvalidConfig(msg)
    return sorted(found, key=lambda one: one.status.pid)


def read_words(
    arguments: Sequence[str], numbers: Collection[str], switches: Collection[str] = ()
) -> dict[str, int]:
    """Return the values of options, by name: `numbers` have one, of `switches` it is 1.

    Raises InvalidConfig.
    """
    found: dict[str, int] = {}
    rest = list(arguments)
    while rest:
        name, equals, text = rest.pop(0).partition("=")
        if name in switches and not equals:
            found[name] = 1
            continue
        if name not in numbers:
            raise InvalidConfig(f"there is no option {name}")
        if not equals:
            text = rest.pop(0) if rest else ""
        if not (text.isascii() and text.isdecimal()) or len(text) > 9:
            raise InvalidConfig(f"{name} is '{text}', expected a number")
        found[name] = int(text)
    return found
