"""ModelThread: a model.py in the server's own process, on a thread.

The same worker, at the other end of the same line, in another place: all of the API works, and
nothing in the server does it twice. A thread cannot be killed. One that is to end and does not is
left behind: it finds its line closed when it comes back, and what it holds is freed then.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable

from inferd.backends.python.code import code_folders
from inferd.backends.python.private import PrivateModules
from inferd.backends.worker.environment import Environment
from inferd.backends.worker.process import Process, Sizes
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed

log = logging.getLogger("inferd.backends")


class ModelThread(Process):
    """A Process that is a thread of this one. What the model prints goes where it does here."""

    def __init__(
        self, name: str, files: ModelFiles, sizes: Sizes, told: Callable[[str, bool], None]
    ) -> None:
        super().__init__(name, Environment(), sizes, told)
        self._files = files

    def start(self) -> None:
        """Start it. Raises BackendFailed when there are no descriptors left for it."""
        try:
            other = self._other.dup()
            fds = [os.dup(fd) for fd in self._fds[1:]]  # its own, as long as it lives
        except OSError as error:
            self._close()
            msg = f"model '{self._name}': its thread cannot be started: {error.strerror}"
            raise BackendFailed(msg) from error
        self._other.close()
        threading.Thread(
            target=self._run, args=(other, fds), name=f"{self._name}-model", daemon=True
        ).start()

    def kill(self, reason: str) -> None:
        """Close its line, and wait no more for it."""
        with self._lock:
            if self.has_ended.is_set():
                return
            self.reason = self.reason or reason
            self.socket.shutdown(socket.SHUT_RDWR)
        self._note_end()

    def _run(self, sock: socket.socket, fds: list[int]) -> None:
        modules = PrivateModules()
        try:
            modules.open(code_folders(self._files))
            try:
                self._work(modules, sock, fds)
            finally:
                modules.close()
        except BaseException:  # whatever a model raises, the server goes on
            log.exception("model '%s': its thread failed", self._name)
        finally:
            sock.close()
            for fd in fds:
                os.close(fd)
            self.reason = self.reason or "ended"
            self._note_end()

    def _work(self, modules: PrivateModules, sock: socket.socket, fds: list[int]) -> None:
        arena, sizes = modules.ours("arena"), self._sizes
        received = arena.Received(fds[0], sizes.arena, writable=True)
        outgoing = arena.Arena(fds[1], sizes.arena, sizes.most)
        worker = modules.ours("worker").Worker(sock, outgoing, received, modules.find_class)
        modules.ours("current").set_worker(worker)
        try:
            worker.run()
        finally:
            worker.line.close()

    def _note_end(self) -> None:
        with self._lock:
            if self.has_ended.is_set():
                return
            self.has_ended.set()
        ended, self.ended = self.ended, _ignore
        ended(self.reason)


def _ignore(_: str) -> None:
    """It was told before."""
