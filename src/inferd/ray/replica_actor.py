"""ReplicaActor: a replica as Ray has it, beside the server that it starts."""

import tempfile
from pathlib import Path

import msgspec

from inferd.ray.serving import ServingProcess
from inferd.ray.spec import GroupSpec


class ReplicaActor:
    """Starts a server, and tells how it is. Its methods never wait."""

    def __init__(self, deployment: str, name: str, spec: bytes) -> None:
        import ray

        group = msgspec.json.decode(spec, type=GroupSpec)
        host = ray.util.get_node_ip_address()
        self._process = ServingProcess(
            group.models,
            group.arguments,
            group.environment,
            _log_folder() / f"inferd-{deployment}-{name}.log",
            host,
            _node_name(host),
        )

    def report(self) -> bytes:
        """Return a ReplicaReport as JSON."""
        return msgspec.json.encode(self._process.report())

    def stop(self) -> None:
        """Have the server finish what is under way and end."""
        self._process.stop()

    def leave(self) -> None:
        """End this actor, whose server has ended."""
        import ray

        # exit_actor takes effect by raising, so that this comes first.
        self._process.kill()
        ray.actor.exit_actor()


def _log_folder() -> Path:
    """Return the folder of Ray's logs on this node, where its tools look."""
    try:
        # Private, as Ray says nowhere else where its logs are; where it is not,
        # the folder for temporary files does.
        from ray._private.worker import _global_node

        return Path(_global_node.get_logs_dir_path())
    except (ImportError, AttributeError):
        return Path(tempfile.gettempdir()) / "inferd"


def _node_name(host: str) -> str:
    """Return how Ray's own tables call this node."""
    import ray

    # The address alone may be that of several nodes, in containers or tests on one machine.
    own = ray.get_runtime_context().get_node_id()
    return f"{host} ({own[:6]})"
