"""Packed environments of Python models: nothing lands outside of the folder they go to.

The members follow each other, fields with FF FE between: kind (f, d, l, h), name, link, content.
Another first byte than T: a tar file as it is.
"""

import io
import shutil
import tarfile
import tempfile
from pathlib import Path

from inferd.backends.worker.environments.archive import Limits, unpack
from inferd.errors import InferdError

ROOT = Path(tempfile.mkdtemp(prefix="inferd-fuzz-"))
TARGET = ROOT / "target"
LIMITS = Limits(max_bytes=1 << 20, max_files=100, timeout_s=5.0)
KINDS = {b"d": tarfile.DIRTYPE, b"l": tarfile.SYMTYPE, b"h": tarfile.LNKTYPE}
FIELDS = 4


def _members(*members: bytes) -> bytes:
    return b"T" + b"\xff\xfe".join(members)


def _packed(kind: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{kind}") as archive:
        member = tarfile.TarInfo("lib/a.py")
        member.size = 100
        archive.addfile(member, io.BytesIO(bytes(range(100))))
    return b"R" + packed.getvalue()


SEEDS = [
    _members(b"d", b"lib", b"", b"", b"f", b"lib/a.py", b"", b"import b"),
    _members(b"f", b"lib/a", b"", b"x", b"l", b"bin", b"lib", b"", b"h", b"c", b"lib/a", b""),
    _members(b"f", b"bin/python3.11", b"", b"", b"l", b"bin/python", b"python3.11", b""),
    _members(b"l", b"a", b"..", b"", b"f", b"a/outside", b"", b"x"),
    *(_packed(kind) for kind in ("gz", "bz2", "xz")),
    _members(b"l", b"bin/python3", b"/no/such/python3", b"", b"f", b"bin/python3", b"", b"x"),
]


def target(data: bytes) -> bool:
    """Unpack; return whether it was taken."""
    archive = ROOT / "packed.tar"
    archive.write_bytes(_tar(data[1:]) if data[:1] == b"T" else data[1:])
    shutil.rmtree(TARGET, ignore_errors=True)
    try:
        unpack(archive, TARGET, LIMITS, "the environment")
    except InferdError:
        return False
    finally:
        assert {path.name for path in ROOT.iterdir()} <= {"target", "packed.tar"}
    return True


def _tar(data: bytes) -> bytes:
    parts = data.split(b"\xff\xfe")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for at in range(0, len(parts) - FIELDS + 1, FIELDS):
            kind, name, link, content = parts[at : at + FIELDS]
            member = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            member.type = KINDS.get(kind, tarfile.REGTYPE)
            member.linkname = link.decode("utf-8", "surrogateescape")
            member.size = len(content) if member.type == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
