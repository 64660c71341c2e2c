"""Confinement: how worker processes are confined, and whether this machine can do it."""

from glob import glob
from pathlib import Path

import msgspec

from inferd import system
from inferd.errors import InvalidConfig

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_GPUS = ("/dev/nvidia*", "/dev/dri", "/dev/kfd")


class Confinement(msgspec.Struct, frozen=True):
    """What confined processes may write: the files and folders `writable`."""

    writable: tuple[str, ...] = _DEVICES

    def beside(self, *paths: str) -> "Confinement":
        """Return one in which `paths` may be written, too."""
        return Confinement((*self.writable, *paths))

    def at(self, kind: str) -> "Confinement":
        """Return that of a process placed at `kind`: what drives GPUs writes to their devices."""
        if kind == "CPU":
            return self
        return self.beside(*(path for pattern in _GPUS for path in glob(pattern)))


def confinement_of(*, is_on: bool, writable: tuple[str, ...]) -> Confinement | None:
    """Return what --confine-workers and --worker-writable say, None if nothing is confined.

    Raises InvalidConfig where this machine cannot do it, and if a path is not there.
    """
    if not is_on:
        if writable:
            msg = "--worker-writable is for processes that --confine-workers=on confines"
            raise InvalidConfig(msg)
        return None
    if missing := system.missing_for_confinement():
        msg = f"--confine-workers=on needs Linux 6.12 or newer with Landlock: {missing}"
        raise InvalidConfig(msg)
    paths = [Path(path).absolute() for path in writable]
    for path in paths:
        if not path.exists():
            raise InvalidConfig(f"--worker-writable={path}: there is no such file or folder")
    return Confinement().beside(*map(str, paths))
