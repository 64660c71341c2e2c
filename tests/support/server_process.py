"""A server process of its own, and what it says."""

import re
import subprocess
import sys

from plugins import with_plugins

LIVE = r"is live at http://127\.0\.0\.1:(\d+) and 127\.0\.0\.1:(\d+)"
ON_FREE_PORTS = ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
ON_FREE_PORTS += ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]


SERVE = ("-m", "inferd", "serve")


class Process:
    """A server process, and what it has written to both of its outputs."""

    def __init__(
        self,
        *arguments,
        command=SERVE,
        program=sys.executable,
        environ=None,
        stderr=subprocess.STDOUT,
    ):
        self.said = ""
        self.process = subprocess.Popen(
            [program, *command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=with_plugins() if environ is None else environ,
        )

    def wait_for(self, pattern):
        """Read on until a line matches, and return the match."""
        for line in self.process.stdout:
            self.said += line
            if match := re.search(pattern, line):
                return match
        msg = f"{pattern!r} is not in:\n{self.said}"
        raise AssertionError(msg)

    def wait_live(self):
        """Return the HTTP port."""
        return int(self.wait_for(LIVE)[1])

    def wait_ready(self):
        """Return the HTTP port."""
        port = self.wait_live()
        self.wait_for(r"\bready$")
        return port

    def end(self):
        """Wait for the end and return the exit code."""
        self.said += self.process.stdout.read()
        return self.process.wait()
