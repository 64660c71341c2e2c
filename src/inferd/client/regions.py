"""Region: shared memory of this machine that a server reads and writes in place."""

from typing import NamedTuple


class SharedRegion(NamedTuple):
    """A region as a server knows it: `key` names the POSIX object."""

    name: str
    key: str
    size_bytes: int
