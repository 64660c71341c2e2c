"""The private folder of this user, where running servers have files, and the names of these."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from inferd import system

if TYPE_CHECKING:
    from inferd.config.server import ServerConfig


def private_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder, made if need be. Raises OSError unless it is this user's alone."""
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    # XDG_RUNTIME_DIR is this user's alone, and is emptied at logout (XDG Base Directory
    # Specification).
    if runtime.is_dir() and system.is_private(runtime.stat(), 0):
        folder = runtime / "inferd"
    else:
        folder = Path(tempfile.gettempdir()) / f"inferd-{system.user_id()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Somebody else may have made a folder of that name in /tmp.
    if folder.is_symlink() or not system.is_private(folder.lstat()):
        raise OSError(f"{folder} can be written by others")
    return folder


def folders_of_servers(environ: Mapping[str, str]) -> list[Path]:
    """Return where to look for running servers. Raises as private_folder does.

    The superuser may name the runtime folder of another user, such as that of a service.
    """
    found = [private_folder(environ)]
    if system.USERS and system.user_id() == 0 and (runtime := environ.get("XDG_RUNTIME_DIR")):
        found.append(Path(runtime) / "inferd")
    return list(dict.fromkeys(found))


def name_of(config: "ServerConfig") -> str:
    """Return a name that a server has again when it is started again, and hardly another."""
    repositories = [os.path.abspath(path) for path in config.model_repository]
    ports = [config.http_port, config.grpc_port, config.http_unix_socket, config.http_address]
    known = json.dumps([config.id, ports, repositories])
    # Paths can be longer than a file's name, and have slashes in it.
    return f"{config.http_port}-{hashlib.sha256(known.encode()).hexdigest()[:16]}"
