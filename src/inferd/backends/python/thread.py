"""ModelThread: a model.py in the server's own process, on a thread.

It runs the same worker at the other end of the same kind of line, so the whole API works without
a second implementation. A thread cannot be killed. One that should end but does not is left
behind: when it returns, it finds its line closed, and its resources are freed.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable

from inferd.backends.python.code import PrivateModules, code_folders
from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.process import Sizes, WorkerProcess
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed

log = logging.getLogger("inferd.backends")


class ModelThread(WorkerProcess):
    """A process that is a thread of this one. The model shares the server's stdout and stderr."""

    def __init__(
        self, name: str, files: ModelFiles, sizes: Sizes, on_line: Callable[[str, bool], None]
    ) -> None:
        super().__init__(name, Environment(), sizes, on_line)
        self._files = files

    def start(self) -> None:
        """Start the thread. Raises BackendFailed if descriptors run out."""
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            fds: list[int] = []  # duplicates, which the thread owns
            try:
                other = self._other.dup()
                undo.callback(other.close)
                for fd in self._fds[1:]:
                    fds.append(os.dup(fd))
                    undo.callback(os.close, fds[-1])
            except OSError as error:
                msg = f"model '{self._name}': its thread cannot be started: {error.strerror}"
                raise BackendFailed(msg) from error
            # From here on the thread owns the duplicates, and closes them.
            undo.pop_all()
        self._other.close()
        threading.Thread(
            target=self._run, args=(other, fds), name=f"{self._name}-model", daemon=True
        ).start()

    def kill(self, reason: str) -> None:
        """Close its line, and report it as ended."""
        with self._lock:
            if self.has_ended.is_set():
                return
            self.reason = self.reason or reason
            # shutdown and not close: it wakes a thread that is reading, and the
            # descriptor is not reused under it.
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
        received = arena.Received(fds[0], sizes.arena, sizes.most, writable=True)
        outgoing = arena.Arena(fds[1], sizes.arena, sizes.most)
        worker = modules.ours("worker").Worker(sock, outgoing, received, modules.find_class)
        modules.ours("pb_utils.calls").set_calls(worker.calls)
        try:
            worker.run(modules.ours("loop").serve)
        finally:
            worker.line.close()
