"""WorkerProcess: one worker process, from its start to its end, and its output.

A dedicated thread starts the process, passes on what it prints, and waits for its end. The thread
lives as long as the process: the kernel kills a worker whose starting thread has ended, so a
server that is killed leaves none behind.

The worker leads a session of its own, so that a Ctrl-C meant for the server does not reach it.
Processes it has started are killed once it has ended, by its group or by its mark. It inherits
three descriptors: its end of the socket and the two arenas. One that is confined has a folder of
its own for temporary files, which goes with it.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inferd import system
from inferd.backends.worker.environments.environment import ON_PATH, Environment
from inferd.backends.worker.lines import Rate
from inferd.errors import BackendFailed, Unsupported
from inferd_worker.arena import Arena, Received

# Not -m: the interpreter may be another environment's, which has no package
# of ours until the folder is on its path.
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from {} import main; main(sys.argv[2:9])"
_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"

MAX_LINE = 8 << 10
MAX_LINES_PER_S = 200
"""Lines that a worker prints beyond this rate are counted, not logged."""

_READ_BYTES = 64 << 10
_LAST_READS = 16  # at most, of each pipe once the process has ended

VARIABLE = "INFERD_WORKER"
"""The environment variable with the mark of a worker."""

_PROCESSES = Path("/proc")
_END_MS = 1000
_ROUNDS = 20  # of scans, for processes that start others meanwhile
_PAUSES = 5  # for processes without variables
_EXEC_PAUSES = 300  # for processes amid an exec, which may take long on a busy machine
_PAUSE_S = 0.01
_ENV_START = 47  # index among the fields of `stat` after the name; field 50 in proc(5)


@dataclass(frozen=True)
class Sizes:
    """The memory limits of a worker, in bytes.

    `arena` is permanently mapped in each direction, and at most `most` beyond it; `memory` limits
    the data of the process, 0 for no limit.
    """

    arena: int = 64 << 20
    most: int = 4 << 30
    memory: int = 0


class WorkerProcess:
    """A worker process. `on_line` gets each line it prints, and whether it went to stderr.

    `ended` is called once with the `reason`, in the process's own thread.
    """

    def __init__(
        self,
        name: str,
        environment: Environment,
        sizes: Sizes,
        on_line: Callable[[str, bool], None],
    ) -> None:
        if not system.WORKERS:
            msg = f"model '{name}': models in processes of their own need Linux or macOS"
            raise Unsupported(msg)
        self._name = name
        self._environment = environment
        self._sizes = sizes
        self._on_line = on_line
        self._mark = uuid.uuid4().hex
        self._folder = ""
        self._started = threading.Event()
        self._failed: OSError | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        # The process ends in its own thread, and is killed from any: never by a number that was
        # freed, and its end is told once.
        self._lock = threading.Lock()
        self.reason = ""
        self.ended: Callable[[str], None] = _ignore
        self.has_ended = threading.Event()
        with contextlib.ExitStack() as undo:  # descriptors or memory may run out
            # macOS has no sequenced packets; the link then finds the ends of packets by itself.
            kind = socket.SOCK_SEQPACKET if system.SEQPACKET else socket.SOCK_STREAM
            self.socket, self._other = socket.socketpair(socket.AF_UNIX, kind)
            undo.callback(self._other.close)
            undo.callback(self.socket.close)
            ours = system.anonymous_file(f"inferd-{name}", sizes.arena)
            undo.callback(os.close, ours)
            theirs = system.anonymous_file(f"inferd-{name}", sizes.arena)
            undo.callback(os.close, theirs)
            self.arena = Arena(ours, sizes.arena, sizes.most)
            self.received = Received(theirs, sizes.arena, sizes.most, writable=False)
            undo.pop_all()
        self._fds: tuple[int, ...] = (self._other.fileno(), ours, theirs)

    @property
    def pid(self) -> int:
        """The number of the running process, 0 if there is none."""
        popen = self._popen
        return popen.pid if popen is not None and not self.has_ended.is_set() else 0

    def start(self) -> None:
        """Start the process. Raises BackendFailed if the interpreter cannot be started."""
        threading.Thread(target=self._keep, name=f"{self._name}-worker", daemon=True).start()
        self._started.wait()
        if self._failed is not None:
            self.close()
            python = self._environment.python.name
            msg = f"model '{self._name}': {python} cannot be started: {self._failed.strerror}"
            raise BackendFailed(msg) from self._failed

    def kill(self, reason: str) -> None:
        """Kill the process and its group now; `reason` is reported to those waiting for it."""
        with self._lock:
            # Under the lock, as wait() in the other thread frees the number: a kill after that
            # could hit any process that got it.
            if self._popen is None or self._popen.returncode is not None:
                return
            self.reason = self.reason or reason
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def _keep(self) -> None:
        try:
            popen = self._spawn()
        except OSError as error:
            self._remove_folder()
            self._failed = error
            self.has_ended.set()
            self._started.set()
            return
        self._popen = popen
        self._other.close()
        self._started.set()
        self._follow(popen)
        with self._lock:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(popen.pid, signal.SIGKILL)  # processes it left behind
            # Last, as the number of the group is this process's: only until
            # it is reaped is it surely ours.
            popen.wait()
        end_descendants(self._mark)
        self._remove_folder()
        self.reason = self.reason or _exit_text(popen.returncode)
        self._note_end()

    def _note_end(self) -> None:
        """Report the end, once."""
        with self._lock:
            if self.has_ended.is_set():
                return
            self.has_ended.set()
        ended, self.ended = self.ended, _ignore  # it may refer to this process
        ended(self.reason)

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment, sizes = self._environment, self._sizes
        numbers = (*self._fds, sizes.arena, sizes.most, os.getpid(), sizes.memory)
        path = list(environment.path)
        # Not by PYTHONPATH, which programs that a model starts would inherit.
        program = f"import sys; sys.path[:0] = {path!r}; " if path else ""
        arguments = [
            "-c",
            program + _PROGRAM.format(environment.main),
            str(ON_PATH),
            *map(str, numbers),
            self._name,
        ]
        variables = environment.all_variables() | {VARIABLE: self._mark}
        writable: tuple[str, ...] = ()
        if environment.confinement is not None:
            self._folder = variables["TMPDIR"] = tempfile.mkdtemp(prefix="inferd-worker-")
            writable = (self._folder,)
        return subprocess.Popen(
            environment.command(*arguments, writable=writable),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=self._fds,
            start_new_session=True,
            env=variables,
        )

    def _remove_folder(self) -> None:
        """Remove the temporary files of a confined process; as their depth is the model's, apart.

        Removing takes a descriptor for each folder that is open, and of those this process has its
        clients' connections.
        """
        if self._folder:
            command = [sys.executable, "-I", "-S", "-c", _REMOVE, self._folder]
            with contextlib.suppress(OSError):
                subprocess.run(command, stderr=subprocess.DEVNULL, check=False)

    def _follow(self, popen: "subprocess.Popen[bytes]") -> None:
        """Pass on what the process prints until it has ended; its children may live on."""
        assert popen.stdout is not None
        assert popen.stderr is not None
        # Waits for the end of the process, not of its pipes: a child of
        # it may have these open for ever.
        end_fd = system.end_of(popen)
        lines = {
            pipe.fileno(): _Lines(self._on_line, is_error=pipe is popen.stderr)
            for pipe in (popen.stdout, popen.stderr)
        }
        poll = select.poll()
        poll.register(end_fd, select.POLLIN)
        for fd in lines:
            os.set_blocking(fd, False)
            poll.register(fd, select.POLLIN)
        has_ended = False
        while not has_ended:
            for fd, _ in poll.poll():
                if fd == end_fd:
                    has_ended = True
                elif not lines[fd].read(fd):
                    poll.unregister(fd)
        for fd, one in lines.items():
            # Bounded, as a child that lives on may print without end.
            for _ in range(_LAST_READS):
                if not one.read(fd):
                    break
            one.end()
        os.close(end_fd)
        popen.stdout.close()
        popen.stderr.close()

    def close(self) -> None:
        """Close the descriptors, once the process has ended or could not be started."""
        self.socket.close()
        self._other.close()
        for fd in self._fds[1:]:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds = self._fds[:1]


class _Lines:
    """Splits the output of a pipe into lines, limited in length and number."""

    def __init__(self, on_line: Callable[[str, bool], None], *, is_error: bool) -> None:
        self._on_line = on_line
        self._is_error = is_error
        self._rest = b""
        self._rate = Rate(MAX_LINES_PER_S)

    def read(self, fd: int) -> bool:
        """Pass on the available lines; return whether there may be more."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._tell(line)
        if len(self._rest) > MAX_LINE:
            self._tell(self._rest)
            self._rest = b""
        return bool(data)

    def end(self) -> None:
        """Pass on the last line, and the number of dropped lines."""
        if self._rest:
            self._tell(self._rest)
        self._tell_missed(self._rate.missed(at_end=True))

    def _tell(self, line: bytes) -> None:
        self._tell_missed(self._rate.missed())
        if not self._rate.allows():
            return
        text = line[:MAX_LINE].decode(errors="replace").rstrip()
        if text:
            self._on_line(text, self._is_error)

    def _tell_missed(self, count: int) -> None:
        if count:
            self._on_line(f"{count} more lines were printed", self._is_error)


def _ignore(_: str) -> None:
    """Do nothing."""


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


def end_descendants(
    mark: str, pause: Callable[[float], object] = time.sleep, processes: Path = _PROCESSES
) -> int:
    """Kill every process that has `mark`; return how many there were.

    They are those that a worker has started, directly or indirectly. Those with a session or group
    of their own are not killed with the worker's group, and once the worker has ended, nothing
    links them to it. So each worker has a mark among its environment variables, which all
    descendants inherit unless they clear their environment.

    A process amid an exec shows no variables although it has them, so processes that show none
    are checked again after some `pause`s. `processes` is a folder such as /proc; where there is
    none, 0 are found.
    """
    if not (system.PIDFD and processes.is_dir()):
        return 0
    wanted = f"{VARIABLE}={mark}".encode()
    ended_count = pause_count = round_count = 0
    # Until a scan finds none: a process may have forked between the listing and its end.
    while round_count < _ROUNDS:
        folders = [processes / name for name in os.listdir(processes) if name.isdigit()]
        found = sum(_end(folder, wanted) for folder in folders)
        ended_count += found
        if found:
            round_count += 1
            continue
        if pause_count >= max(map(_pauses, folders), default=0):
            break
        pause_count += 1
        pause(_PAUSE_S)
    return ended_count


def _end(folder: Path, wanted: bytes) -> bool:
    """Kill the process of `folder` if it is one of ours and alive; return whether it was."""
    if not _is_marked(folder, wanted):
        return False
    try:
        process = os.pidfd_open(int(folder.name))
    except OSError:  # it has already ended
        return False
    try:
        # The pid may have been reused: check again, now that the pidfd pins the process.
        if not _is_marked(folder, wanted):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        # Its variables are there until it is gone; the next scan would count it once more.
        end.poll(_END_MS)
        return True
    finally:
        os.close(process)


def _pauses(folder: Path) -> int:
    """Return how many pauses a process may take until it shows variables.

    0 for processes that show some, and for kernel threads, which have no memory. A process with
    memory but no address for its variables is amid an exec.
    """
    try:
        has_memory = not (folder / "statm").read_text().startswith("0 ")
        if not has_memory or (folder / "environ").read_bytes():
            return 0
        # Behind the last ")": the name of a process stands in parentheses,
        # and may contain some, and spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return _PAUSES if int(fields[_ENV_START]) else _EXEC_PAUSES


def _is_marked(folder: Path, wanted: bytes) -> bool:
    try:
        variables = (folder / "environ").read_bytes()
    except OSError:  # it is another user's, or has ended
        return False
    return wanted in variables.split(b"\0")
