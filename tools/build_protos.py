"""Compiles every .proto of the package into a descriptor set (.binpb) beside it.

    python tools/build_protos.py            write them
    python tools/build_protos.py --check    fail if one is missing or out of date

Needs grpcio-tools (dependency group "proto"). A file imports another by its bare name: the folders
named proto/ are the import path. A .binpb contains only its own file, not the imported ones.
"""

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "inferd"


def main(arguments: list[str]) -> int:
    """Build, or with --check compare; return the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    sources = sorted(PACKAGE.rglob("proto/*.proto"))
    folders = sorted({source.parent for source in sources})
    stale = []
    for source in sources:
        built, target = descriptor_set(source, folders), source.with_suffix(".binpb")
        if target.exists() and target.read_bytes() == built:
            continue
        if arguments:
            stale.append(target)
        else:
            target.write_bytes(built)
            print(f"wrote {target.relative_to(PACKAGE)}")
    for target in stale:
        print(f"out of date: {target.relative_to(PACKAGE)}; run python tools/build_protos.py")
    return 1 if stale else 0


def descriptor_set(source: Path, folders: list[Path]) -> bytes:
    """Return the serialized FileDescriptorSet of `source`. Exits if it does not compile."""
    google = resources.files("grpc_tools").joinpath("_proto")
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "out.binpb")
        status = protoc.main(
            [
                "protoc",
                *(f"--proto_path={folder}" for folder in folders),
                f"--proto_path={google}",
                f"--descriptor_set_out={target}",
                str(source),
            ]
        )
        if status:
            sys.exit(status)
        return target.read_bytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
