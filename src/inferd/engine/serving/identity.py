"""Identities: what answers depend on, so that cached ones are only given for the same model.

In a cache of this server's own, each load has a new identity. In a cache that servers share,
versions are the same when their configurations and all bytes of their files are; reading those
takes long, so it is done once, in the thread that loads the model, or the first ensemble that needs
the identity. An ensemble's identity is its configuration and what serves its steps at the moment.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import inferd
from inferd.config.model import ModelConfig
from inferd.errors import InferdError

log = logging.getLogger("inferd.engine")


class Identity:
    """What the answers of one version depend on, once it is settled.

    `read` determines it; it returns None when it cannot, and raises OSError. An ensemble depends on
    its steps, too: `steps` are the identities of what served these when it was loaded, `find`
    returns those of what serves them now, and raises InferdError when nothing serves one. A version
    that needs no identity has neither.
    """

    def __init__(
        self,
        name: str = "",
        read: Callable[[], bytes | None] | None = None,
        steps: Sequence["Identity"] = (),
        find: Callable[[], Sequence["Identity"]] | None = None,
    ) -> None:
        self._name = name
        self._read = read
        self._steps = steps
        self._find = find
        self._found: bytes | None = None

    def __call__(self) -> bytes | None:
        """Return the identity as of now, None when it is not known."""
        if self._find is None:
            return self._found
        try:
            steps = self._find()
        except InferdError:
            return None
        digest = hashlib.sha256()
        for one in (self._found, *(step() for step in steps)):
            if one is None:
                return None
            # With its length in front, so that two parts cannot be split in another place and be
            # equal.
            digest.update(len(one).to_bytes(1, "little") + one)
        return digest.digest()

    def settle(self) -> None:
        """Determine what takes long to find out; to be called in a thread.

        A version whose files cannot be read stays unknown.
        """
        for step in self._steps:
            step.settle()
        if self._found is not None or self._read is None:
            return
        why = "they changed while it was loaded"
        try:
            self._found = self._read()
        except OSError as error:
            why = error.strerror or type(error).__name__
        if self._found is None:
            log.warning("answers of model '%s' are not kept; its files: %s", self._name, why)


def random_identity() -> bytes:
    """Return an identity that no other version has."""
    return os.urandom(16)


def shared_identity(config: ModelConfig, version: int, files: bytes) -> bytes:
    """Return the identity that all versions with this configuration and these `files` share.

    The number of instances, the version policy, and which fields were written do not matter.
    """
    nothing: frozenset[str] = frozenset()
    # A set has another order, and so another text, in each process.
    shared = replace(config, instance_group=(), version_policy=None, given=nothing, written=nothing)
    # Another version of inferd may compute in another way.
    words = (inferd.__version__, config.name, version, repr(shared), files)
    return hashlib.sha256(repr(words).encode(errors="surrogatepass")).digest()
