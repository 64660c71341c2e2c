"""The packages of src: inferd, and the siblings that are installed with it."""

from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
PACKAGE = SRC / "inferd"
SIBLINGS = sorted(folder for folder in SRC.glob("inferd_*") if folder.is_dir())
MODULES = {
    str(path.relative_to(SRC)): path
    for folder in (PACKAGE, *SIBLINGS)
    for path in sorted(folder.rglob("*.py"))
}
"""Each module's path below src -> its file."""
