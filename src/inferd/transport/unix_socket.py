"""UnixSocket: a socket with a path in the file system, bound only if nobody listens there."""

import errno
import os
import socket
import stat
from contextlib import suppress

from inferd import system


class UnixSocket:
    """The socket bound at `path`. Raises OSError, for example if a server listens there.

    A socket left behind by a server that was killed is replaced.
    """

    def __init__(self, path: str) -> None:
        if not system.UNIX_SOCKETS:
            raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets")
        _remove_deserted(path)
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(path)
            # By device and inode: the path may be given to a new server before this one has ended.
            self._file = _file_at(path)
        except BaseException as error:
            self.socket.close()
            # Python, not the system, refuses what has no room in an address, and gives no number.
            if isinstance(error, OSError) and error.errno is None:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)) from error
            raise

    def remove(self) -> None:
        """Unlink the path, unless another socket has been put there meanwhile."""
        with suppress(OSError):
            if _file_at(self._path) == self._file:
                os.unlink(self._path)


def _remove_deserted(path: str) -> None:
    """Remove a socket at `path` on which nobody listens. Raises OSError if somebody does."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Never anything else than a socket is removed.
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # bind() will report what is wrong
        probe.setblocking(False)  # a server too busy to accept is listening all the same
        # A socket's file stays when its process ends; connecting tells whether anybody listens.
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)
            return
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _file_at(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
