"""Access control: builds each protocol's guards from the options and the file of API keys."""

import logging
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from inferd.api.access import KeyRing
from inferd.config.options.access import ApiKey, read_api_keys, read_restrictions
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.http.access import OPEN, Access, Secret
from inferd.repository.contents import read_limited

LOGGER = logging.getLogger("inferd")

MAX_BYTES = 1 << 20
"""The largest file of API keys; room for ten thousand keys."""

_FLAG = "--api-key-file"
_GRPC_PREFIX = "triton-grpc-protocol-"
"""The prefix of a restriction's key in gRPC metadata, as in Triton."""


def fill_ring(ring: KeyRing, path: str) -> None:
    """Put the API keys of the file `path` on `ring`.

    Raises InvalidConfig when the file cannot be used; `ring` then stays as it was.
    """
    ring.keys = _read_keys(path)
    if not ring.keys:
        LOGGER.warning("there is no API key in %s: nobody is let in", path)


def http_access(config: ServerConfig, ring: KeyRing | None = None) -> Access:
    """Return who may call what over HTTP. Raises InvalidConfig."""
    return _access(config, ring, "--http-restricted-api", config.http_restricted_api)


def grpc_access(config: ServerConfig, ring: KeyRing | None = None) -> Access:
    """Return who may call what over gRPC. Raises InvalidConfig."""
    flag, texts = "--grpc-restricted-protocol", config.grpc_restricted_protocol
    return _access(config, ring, flag, texts, _GRPC_PREFIX)


def _access(
    config: ServerConfig, ring: KeyRing | None, flag: str, texts: Sequence[str], prefix: str = ""
) -> Access:
    secrets = {
        api: Secret(f"{prefix}{key}".encode(), value.encode())
        for api, (key, value) in read_restrictions(flag, texts).items()
    }
    # Nothing is restricted: no guard is built, and a call asks nobody.
    if not secrets and ring is None:
        return OPEN
    # Probes of Kubernetes send no key unless they are told to.
    keyless = frozenset() if config.api_key_for_health else frozenset(("health",))
    return Access(secrets, ring, keyless)


def _read_keys(path: str) -> Mapping[bytes, ApiKey]:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would wait for a writer
            raise InvalidConfig(f"{_FLAG}: {path} is not a file")
        data = read_limited(Path(path), MAX_BYTES, f"{_FLAG}: {path}")
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidConfig(f"{_FLAG}: cannot read {path}: {reason}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        msg = f"{_FLAG}: {path} is not UTF-8"
        raise InvalidConfig(msg) from None  # the cause would show bytes of the file
    return read_api_keys(text, f"{_FLAG} {path}")
