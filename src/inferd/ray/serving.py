"""ServingProcess: the server of a replica, as its actor starts, watches and stops it; no Ray."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from http.client import HTTPException
from pathlib import Path

import msgspec

from inferd import system
from inferd.ray.keeper import KILL, STOP
from inferd.ray.replica import ReplicaReport, ServingState, read_load
from inferd.server.address import host_and_port

# The server is given port 0, and says in this line which ports it got.
_LIVE = re.compile(r"is live at (https?)://(\S+):(\d+)(?: and (\S+):(\d+))?")
_METRICS = re.compile(r"^Metrics +(http://\S+)", re.MULTILINE)
_SEVERE = re.compile(r"^(?:.*\b(?:ERROR|CRITICAL|error|critical)\b|inferd serve:).*$", re.MULTILINE)
_ASK_S = 2.0
_MOST_LOG_BYTES = 1_000_000
_MOST_SHOWN = 300
LOADING_LOOK_S = 0.1
LOOK_S = 0.5
MODELS_LOOK_S = 5.0
"""How often a server is asked which models it has."""


class ServingProcess:
    """A server with `arguments`, whose output goes to the file `log`; it listens on `host`.

    A thread of its own looks how it is. Models that are paths must be there: the report of a server
    that lacks one is that of one that has ended.
    """

    def __init__(
        self,
        models: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        host: str,
        node: str,
    ) -> None:
        self._log = log
        self._host = host
        # One of the same name may have written there before.
        self._read_bytes = log.stat().st_size if log.exists() else 0
        self._said = ""
        self._words = b""
        self._pid = 0
        self._metrics = ""
        self._models: tuple[str, ...] | None = None
        self._models_s = 0.0
        self._link: socket.socket | None = None
        self._is_stopping = False
        self._report = ReplicaReport(
            state=ServingState.LOADING, node=node, host=host, reconnect_s=_reconnect_s(os.environ)
        )
        missing = [one for one in models if "://" not in one and not os.path.exists(one)]
        if missing:
            self._end(f"node {node} has no {missing[0]}")
            return
        self._link = self._start([*models, *_ports(arguments, host)], environment)
        # A thread, as methods of the actor must not wait: the controller
        # counts a slow answer as silence.
        threading.Thread(target=self._keep_looking, name="inferd-look", daemon=True).start()

    def report(self) -> ReplicaReport:
        """Return how it is now."""
        return self._report

    def stop(self) -> None:
        """Have the server finish what is under way and end."""
        self._is_stopping = True
        self._send(STOP)

    def kill(self) -> None:
        """End the server at once."""
        self._is_stopping = True
        self._send(KILL)

    def look(self) -> None:
        """See how the server is now."""
        self._listen()
        if self._report.state is ServingState.ENDED:
            return
        self._read_log()
        report = self._report
        if report.http_port == 0 and (live := _LIVE.search(self._said)):
            report = _changed(
                report,
                http_port=int(live[3]),
                grpc_port=int(live[5] or 0),
                is_tls=live[1] == "https",
                pid=self._pid,
            )
        # A server that drains still says that it is ready, which it is for
        # fronts; here it counts as ending.
        if self._is_stopping:
            report = _changed(report, state=ServingState.ENDING)
        elif report.http_port:
            report = self._examined(report)
        self._report = report

    def _keep_looking(self) -> None:
        while self._report.state is not ServingState.ENDED:
            self.look()
            is_ready = self._report.state is ServingState.READY
            # More often while it loads: that time is added to each replacement.
            time.sleep(LOOK_S if is_ready else LOADING_LOOK_S)

    def _start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> socket.socket:
        """Start the keeper, and return the end of its socket that is ours."""
        ours, theirs = socket.socketpair()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with theirs:
            keeper = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "inferd.ray.keeper"),
                    *(str(theirs.fileno()), str(self._log), *arguments),
                ],
                pass_fds=(theirs.fileno(),),
                env=_inherited(os.environ) | dict(environment),
                stdin=subprocess.DEVNULL,
            )
            keeper.wait()  # it goes on as a process that is nobody's child
        ours.setblocking(False)
        return ours

    def _send(self, word: bytes) -> None:
        if (link := self._link) is not None:
            with suppress(OSError):  # it has ended
                link.sendall(word)

    def _listen(self) -> None:
        """Take in what the keeper says."""
        if self._link is None:
            return
        try:
            received = self._link.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received and self._report.state is not ServingState.ENDED:
            # The keeper says how the server ended before it closes the socket, unless it could not.
            self._end("its keeper has been killed")
        self._words += received
        # The last part may be half a line.
        *lines, self._words = self._words.split(b"\n")
        for line in lines:
            what, number = line.decode().split()
            if what == "pid":
                self._pid = int(number)
            else:
                self._read_log()
                self._end(self._why(int(number)))

    def _end(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._report = _changed(self._report, state=ServingState.ENDED, reason=reason)

    def _why(self, code: int) -> str:
        """Return how the server ended, with the last error that it told."""
        words = self._complaint() or next(iter(self._said.strip().splitlines()[-1:]), "")
        last = f": {words[:_MOST_SHOWN]}" if code else ""
        return f"the server has ended, {system.how_ended(code)}{last} (log: {self._log})"

    def _complaint(self) -> str:
        """Return the last error that the server has written, "" if there was none."""
        found = _SEVERE.findall(self._said)
        return found[-1].strip()[:_MOST_SHOWN] if found else ""

    def _read_log(self) -> None:
        """Read what the server has written since the last time, of which the end is kept."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._read_bytes)
                # Bounded, as a server at the level of debugging may write faster than this reads.
                text = file.read(_MOST_LOG_BYTES)
        except OSError:
            return
        self._read_bytes += len(text)
        self._said = (self._said + text.decode(errors="replace"))[-_MOST_LOG_BYTES:]

    def _examined(self, report: ReplicaReport) -> ReplicaReport:
        """Return the report after asking the server itself."""
        base = base_url(report)
        if not is_ready(base):
            reason = self._complaint() or "models are loading"
            return _changed(report, state=ServingState.LOADING, reason=reason)
        now = time.monotonic()
        # Less often than the rest: the index goes through all models, and they seldom change.
        if now - self._models_s >= MODELS_LOOK_S:
            self._models, self._models_s = ready_models(base), now
        if not self._metrics and (found := _METRICS.search(self._said)):
            self._metrics = found[1]
        load, at_s = report.load, report.at_s
        if self._metrics and (text := _got(self._metrics)) is not None:
            load, at_s = read_load(text), now
        return _changed(
            report,
            state=ServingState.READY,
            reason="",
            models=self._models,
            load=load,
            at_s=at_s,
        )


def base_url(report: ReplicaReport) -> str:
    """Return the beginning of the URLs of a server."""
    scheme = "https" if report.is_tls else "http"
    return f"{scheme}://{host_and_port(report.host, report.http_port)}"


def is_ready(base: str) -> bool:
    """Return whether the server at a URL says that it is ready."""
    return _got(f"{base}/v2/health/ready") is not None


def ready_models(base: str) -> tuple[str, ...] | None:
    """Return the models that have a ready version, None if the server does not tell."""
    text = _got(f"{base}/v2/repository/index", b'{"ready": true}')
    if text is None:
        return None
    try:
        return tuple(sorted({str(one["name"]) for one in json.loads(text)}))
    except (ValueError, TypeError, KeyError):
        return None


def _got(url: str, body: bytes | None = None) -> str | None:
    """Return what the server answers, None for anything but a success.

    It is this machine's own, or one of the cluster's, so its certificate is not looked at.
    """
    try:
        with _opener().open(url, body, timeout=_ASK_S) as answer:
            text: bytes = answer.read()
            return text.decode(errors="replace")
    except (OSError, ValueError, HTTPException):
        return None


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Return what opens URLs without a proxy, and any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    # A certificate is for the name that clients use, and this asks by the address of the node.
    context.verify_mode = ssl.CERT_NONE
    # Without the empty ProxyHandler, HTTP_PROXY of the environment would be asked for addresses of
    # the cluster.
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )


def _ports(arguments: Sequence[str], host: str) -> list[str]:
    """Return the arguments, with free ports on `host` unless they say where to listen."""
    # Free ports, as replicas of several groups share a machine.
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    named = {each.partition("=")[0] for each in arguments}
    addresses = [f"--{one}-address={host}" for one in ("http", "grpc", "metrics")]
    return [*arguments, *ports, *(one for one in addresses if one.partition("=")[0] not in named)]


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what Ray has set for the actor's own process."""
    # With them, a model.py that uses Ray itself could take itself for part of this actor.
    return {name: value for name, value in environ.items() if not name.startswith("RAY_")}


def _reconnect_s(environ: Mapping[str, str]) -> float:
    """Return how long Ray's processes on this node do without the head."""
    try:
        return float(environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))
    except ValueError:
        return 60.0


def _changed(report: ReplicaReport, **changes: object) -> ReplicaReport:
    return msgspec.structs.replace(report, **changes)
