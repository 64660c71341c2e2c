"""Builds the documentation site: build_site.py FOLDER makes FOLDER/VERSION and an index page.

Every link is checked; a warning is an error (docs/decisions/0053-site.md).
"""

import html
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>inferd</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<h1>inferd</h1>
<ul>
{rows}
</ul>
</html>
"""


ROW = '<li><a href="{0}/index.html">{0}</a>'


def order_of(name: str) -> list[int]:
    """Return what versions are sorted by: their numbers."""
    return [int(number) for number in re.findall(r"\d+", name)]


def write_index(folder: Path) -> None:
    """Write the page that leads to the newest version, and lists all that are in `folder`."""
    names = [one.parent.name for one in folder.glob("*/index.html")]
    names.sort(key=order_of, reverse=True)
    rows = [
        f'<li><a href="{html.escape(name)}/index.html">{html.escape(name)}</a>' for name in names
    ]
    page = PAGE.format(newest=html.escape(names[0]), rows="\n".join(rows))
    (folder / "index.html").write_text(page)


def main(folder: Path) -> int:
    """Build the site of the installed version; return Sphinx's exit code."""
    place = folder / version("inferd")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-j",
        "auto",
    ]
    command += ["-d", str(folder / ".doctrees"), str(ROOT / "docs"), str(place)]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        write_index(folder)
        print(f"the site is in {folder}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
