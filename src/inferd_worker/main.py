"""The main program of a worker process."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import sys

from . import api
from .arena import Arena, Received
from .loop import serve
from .pb_utils.calls import set_calls
from .worker import Worker

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Run the worker that `arguments` describe, to its end.

    They are numbers: the socket, the arena to read, the arena to write, their size, the most bytes
    beyond it, the server's process id, the most bytes of data (0: no limit).
    """
    # Registered rather than found: the model's folders may have a file of that name.
    sys.modules["triton_python_backend_utils"] = sys.modules["c_python_backend_utils"] = api
    sys.argv = [""]  # hide this program's arguments from the model
    worker = Worker(*inherit(arguments))
    set_calls(worker.calls)
    worker.run(serve)
    with contextlib.suppress(BaseException):  # exceptions were already printed
        atexit._run_exitfuncs()  # a regular exit would wait for threads as well
    end_process()


def inherit(arguments: list[str]) -> tuple[socket.socket, Arena, Received]:
    """Return the socket to the server, the arena to write, and the one to read.

    See main. From now on the process ends with the server.
    """
    sock, incoming, outgoing, size, most, parent, memory = map(int, arguments)
    _die_with(parent)
    _limit(memory)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end
    for fd in (sock, incoming, outgoing):
        os.set_inheritable(fd, False)
    # Writable, because models may change their inputs in place, as Triton lets them.
    received = Received(incoming, size, most, writable=True)
    return socket.socket(fileno=sock), Arena(outgoing, size, most), received


def end_process() -> None:
    """End this process without waiting for threads that a model left behind."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        # Or a server that is killed would leave its workers behind, with GPUs and memory taken.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has already ended
        os._exit(1)


def _limit(memory: int) -> None:
    if memory:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
