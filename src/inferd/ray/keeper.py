"""Keeper: a process beside a replica's actor that starts its server, and has it drain at the end.

Ray kills the children of an actor's process when it ends that. So the server is no child of it: the
keeper leaves its parent and has the server as its own child. It listens to the actor on a socket,
and when that is closed, however the actor ended, the server gets SIGTERM and finishes what is under
way; so it does if the keeper itself is killed.

    python -m inferd.ray.keeper DESCRIPTOR LOG ARGUMENTS...   # of inferd serve
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress

STOP, KILL = b"s", b"k"
"""What the actor may send: SIGTERM for the server, SIGKILL. It hears "pid N", then "exit N"."""

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run a server, and return its exit code."""
    descriptor, log, *arguments = sys.argv[1:]
    # The classic pair of fork and setsid: the parent ends, so init is the parent of what goes on,
    # and Ray, which kills the children of an actor, does not find it.
    if os.fork():
        os._exit(0)
    os.setsid()
    with socket.socket(fileno=int(descriptor)) as link, open(log, "ab") as file:
        # Loaded before the fork: little may be done between fork and exec, and
        # opening a library is not part of it.
        libc = ctypes.CDLL(None)
        server = subprocess.Popen(
            # -P: the working folder, which is Ray's, must not be where modules are found.
            [sys.executable, "-P", "-m", "inferd", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # So that the server drains even when the keeper is killed. Here, unlike in an actor,
            # the parent is a process that Ray does not end.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
        )
        _say(link, f"pid {server.pid}")
        _watch(link, server)
        code = server.wait()
        _say(link, f"exit {code}")
    return code


def _watch(link: socket.socket, server: subprocess.Popen[bytes]) -> None:
    """Pass on what the actor sends until the server has ended."""
    # A descriptor that poll can wait for, together with the socket; no thread and no SIGCHLD.
    ended = os.pidfd_open(server.pid)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == ended:
                os.close(ended)
                return
            words = _received(link)
            if KILL in words:
                server.kill()
            else:
                # Also at the end of the socket, when nothing was received: the actor is gone.
                server.send_signal(signal.SIGTERM)
            if not words:
                # A closed socket is always readable: the loop would spin
                # until the server has drained.
                poll.unregister(link)


def _received(link: socket.socket) -> bytes:
    try:
        return link.recv(16)
    except OSError:
        return b""


def _say(link: socket.socket, text: str) -> None:
    with suppress(OSError):  # the actor has ended
        link.sendall(f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
