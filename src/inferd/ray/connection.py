"""RayPlacement: a deployment on a Ray cluster, for programs and the command line."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import msgspec

import inferd
from inferd.errors import InferdError, InvalidConfig, Unavailable, Unsupported
from inferd.ray.controller import ControllerActor
from inferd.ray.head import NAMESPACE, controller_name, first_line
from inferd.ray.spec import DEFAULT_NAME, DeploymentSpec
from inferd.ray.status import DeploymentStatus, ReplicaPlace

ANSWER_S = 30.0
"""How long a controller may take to answer."""

_CONNECT_S = 5.0
_HEAD = "node:__internal_head__"
"""The resource that only the node of the head has."""

_LOOK_S = 0.25


class RayPlacement:
    """The deployment `name` on the cluster at `address`: HOST:PORT, ray://HOST:PORT, or "auto".

    With "auto" it is the cluster that this machine is a node of; in a program that has called
    ray.init, the one that it is in. Raises InferdError when there is no Ray, or none there; close
    it, or use it as a context, to leave the cluster. What is deployed goes on without it.
    """

    def __init__(self, address: str = "auto", name: str = DEFAULT_NAME) -> None:
        self._name = name
        self._ray = imported_ray()
        self._handle: Any = None
        # A program that has entered a cluster by itself goes on in it when this is closed.
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            connect(self._ray, address)
        elif address != "auto":
            msg = f"this program is in a Ray cluster already; leave it (ray.shutdown) for {address}"
            raise InvalidConfig(msg)

    def __enter__(self) -> Self:
        """See `close`."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `close`."""
        self.close()

    def close(self) -> None:
        """Leave the cluster, if it was entered here."""
        if self._is_ours:
            self._ray.shutdown()

    def deploy(self, spec: DeploymentSpec, *, replace: bool = False) -> None:
        """Bring about what `spec` says: start, replace and end replicas.

        With `replace`, also replicas that are as they should be are replaced by others. Raises
        InferdError if nothing was begun; `follow` tells how it goes on.
        """
        self._start_controller()
        self._ask("deploy", msgspec.json.encode(spec), int(replace))

    def remove(self) -> None:
        """End all replicas, once what they have under way is finished, and the controller."""
        # Asked again and again, as a drain may take longer than one call to the controller may.
        while not self._ask("end", _LOOK_S):
            pass
        self._ray.kill(self._controller())
        self._handle = None

    def scale(self, group: str, count: int) -> None:
        """Have `count` replicas of a group, within its bounds, until its load says otherwise."""
        self._ask("scale", group, count)

    def wake(self, group: str) -> None:
        """Have a replica of a group that has none."""
        self._ask("wake", group)

    def status(self) -> DeploymentStatus:
        """Return how everything is."""
        return msgspec.json.decode(self._ask("status"), type=DeploymentStatus)

    def follow(self, timeout_s: float) -> Iterator[DeploymentStatus]:
        """Yield the status, some times a second, until all is as wanted, or given up.

        Raises Unavailable after `timeout_s`.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            status = self.status()
            yield status
            if status.is_settled or status.is_given_up:
                return
            if time.monotonic() >= until_s:
                raise Unavailable(f"not done within {timeout_s:g} s; the cluster goes on with it")
            time.sleep(_LOOK_S)

    def watch(self) -> Iterator[DeploymentStatus]:
        """Yield the status, some times a second, for ever."""
        while True:
            time.sleep(_LOOK_S)
            yield self.status()

    def places(self, version: int = 0, wait_s: float = 0.0) -> tuple[int, list[ReplicaPlace]]:
        """Return where replicas serve, and the version of that.

        With the version of the last time, it waits until there is another, for at most `wait_s`.
        """
        found, text = self._ask("places", version, wait_s, more_s=wait_s)
        return found, msgspec.json.decode(text, type=list[ReplicaPlace])

    def _controller(self) -> Any:
        """Return the controller. Raises Unavailable if there is none.

        It is looked for once: the head, which knows it, may be away later.
        """
        if self._handle is None:
            try:
                name = controller_name(self._name)
                self._handle = self._ray.get_actor(name, namespace=NAMESPACE)
            except ValueError as error:
                msg = f"nothing is deployed under the name {self._name!r} (inferd deploy FILE)"
                raise Unavailable(msg) from error
        return self._handle

    def _start_controller(self) -> None:
        """Have a controller of this version, which is started if there is none."""
        name = controller_name(self._name)
        with suppress(Unavailable):
            # Actors run the code that was there when they started. The next controller takes the
            # replicas over, so that exchanging it costs nothing.
            if self._ask("version") == inferd.__version__:
                return
            self._ray.kill(self._controller())  # replicas do not notice
            self._handle = None
            self._wait_gone(name)
        # Without a CPU of its own, the controller also has a place on a
        # cluster that is full of replicas.
        options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0}
        # -1 is for ever. Each follower's question waits inside of the controller, hence so many
        # calls at a time. get_if_exists, as two people may deploy at the same moment.
        options |= {"max_restarts": -1, "max_concurrency": 1000, "get_if_exists": True}
        options["resources"] = _near_the_head(self._ray)
        self._handle = self._ray.remote(ControllerActor).options(**options).remote(self._name)

    def _wait_gone(self, name: str) -> None:
        with suppress(ValueError):
            while True:
                self._ray.get_actor(name, namespace=NAMESPACE)
                time.sleep(_LOOK_S)

    def _ask(self, method: str, *arguments: object, more_s: float = 0.0) -> Any:
        """Return what the controller answers. Raises InferdError.

        If it has died, Ray starts it again; it is asked until then.
        """
        errors = self._ray.exceptions
        until_s = time.monotonic() + ANSWER_S
        while True:
            try:
                reference = getattr(self._controller(), method).remote(*arguments)
                return self._ray.get(reference, timeout=ANSWER_S + more_s)
            except errors.GetTimeoutError as error:
                raise self._silent() from error
            except errors.RayTaskError as error:
                cause = error.cause
                # What the controller itself raised keeps its class and text on this side.
                raise cause if isinstance(cause, InferdError) else _failed(error) from error
            # Not final: Ray starts the controller again, or the connection comes back.
            except errors.ActorUnavailableError as error:
                if time.monotonic() >= until_s:
                    raise self._silent() from error
                time.sleep(_LOOK_S)
            except errors.RayError as error:
                self._handle = None  # another may have its name by now
                raise _failed(error) from error

    def _silent(self) -> InferdError:
        return Unavailable(
            f"the controller of {self._name!r} has not answered for {ANSWER_S:g} s; "
            f"what serves goes on"
        )


def _failed(error: Exception) -> InferdError:
    return Unavailable(f"Ray: {first_line(error)}")


def imported_ray() -> Any:
    """Return the module. Raises Unsupported if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise Unsupported(f"Ray is not installed ({error}): pip install 'inferd[ray]'") from error
    return ray


def connect(ray: Any, address: str) -> None:
    """Enter the cluster at `address`. Raises Unavailable, soon if nobody is there."""
    # Where this machine has been a node once, "auto" is an address that Ray
    # remembers, and would try for minutes.
    check_address(_own_address() or address if address == "auto" else address)
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            # Otherwise Ray prints what all actors write, and changes the logging of the program
            # that only asks for a status.
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = "this machine" if address == "auto" else address
        hint = "; ray start --head starts a cluster" if address == "auto" else ""
        msg = f"no Ray cluster can be entered at {where}: {first_line(error)}{hint}"
        raise Unavailable(msg) from error
    _hear_no_errors()


def _hear_no_errors() -> None:
    """End Ray's thread that prints errors of the cluster, at the latest when the head goes.

    Without a head it asks for the next error again and again, and takes half a core. Where Ray has
    no such thread any more, nothing is to be done.
    """
    try:
        from ray._private.worker import global_worker

        # Private to Ray: there is no public way. Whatever it becomes,
        # the worst is that half a core.
        global_worker.threads_stopped.set()
    except (ImportError, AttributeError):
        return


def _near_the_head(ray: Any) -> dict[str, float]:
    """Return what the controller needs of its node: the head, without which nothing is started.

    Elsewhere, the end of a machine would take it away just when replicas are to be replaced, until
    Ray has noticed. (A soft affinity does not hold for actors that need nothing else.) Without a
    head that can be told, it is anywhere.
    """
    return {_HEAD: 0.001} if _HEAD in ray.cluster_resources() else {}


def _own_address() -> str | None:
    """Return what Ray takes for "auto", None if that is nothing, or Ray does not say it here."""
    try:
        from ray._private.services import canonicalize_bootstrap_address

        found: str | None = canonicalize_bootstrap_address("auto")
    except (ImportError, AttributeError, ConnectionError, ValueError):
        return None
    return found


def check_address(address: str) -> None:
    """Raise Unavailable if no Ray answers at an address: Ray itself would try for minutes.

    Raises InvalidConfig if it is none.
    """
    if address == "auto":  # this machine knows no cluster, which Ray says at once
        return
    where = address.removeprefix("ray://")
    host, colon, port = where.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        msg = f"the address of Ray is {address!r}, expected HOST:PORT, ray://HOST:PORT or auto"
        raise InvalidConfig(msg)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        msg = f"no Ray cluster can be reached at {address}: {error.strerror or error}"
        raise Unavailable(msg) from error
    # With TLS the probe would need Ray's certificates.
    if not os.environ.get("RAY_USE_TLS") and not _answers_grpc(where):
        raise Unavailable(f"what listens at {address} is no Ray, or does not answer")


def _answers_grpc(where: str) -> bool:
    """Return whether a server of gRPC answers, whatever it is that it says."""
    import grpc

    # gRPC takes the proxies of the environment, which do not lead into a cluster.
    with grpc.insecure_channel(where, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)(
                b"", timeout=_CONNECT_S
            )
        except grpc.RpcError as error:
            # Any other status, UNIMPLEMENTED too, is the answer of a gRPC server.
            silent = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            return error.code() not in silent
    return True
