"""Unpacks axe-core, which finds what keeps people out of a page, from npm's package of it.

    python tools/unpack_axe.py FOLDER

Nothing of the package is installed or run here. Without npm there is none, and the tests say so.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "axe-core@4.14.1"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
FILE = "axe.min.js"


def unpack(package: Path, folder: Path) -> None:
    """Write the one file that is needed into `folder`. Raises ValueError for another package."""
    if hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
        msg = f"{package.name} is not what {PACKAGE} was"
        raise ValueError(msg)
    with tarfile.open(package) as files:
        member = files.extractfile(f"package/{FILE}")
        assert member is not None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(member.read())


def main() -> int:
    """Download and unpack; return the exit code."""
    folder = Path(sys.argv[1])
    npm = shutil.which("npm")
    if npm is None:
        print("there is no npm here: the tests go on without axe-core")
        return 0
    with tempfile.TemporaryDirectory() as place:
        pack = [npm, "pack", PACKAGE, "--silent", "--pack-destination", place]
        subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
        [package] = Path(place).glob("*.tgz")
        unpack(package, folder)
    print(f"{PACKAGE} is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
