"""Writes the synchronous client from the asynchronous one.

    python tools/build_sync_client.py            write src/inferd/client/sync/
    python tools/build_sync_client.py --check    fail if it is out of date

Each module of src/inferd/client/aio/ but io.py, whose other side is written by hand, is copied
without `async`, `await` and `Async`. What it stands on has the same names in both folders.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "inferd" / "client"
WRITTEN = {"__init__.py", "io.py"}
NOTE = "# Written by tools/build_sync_client.py from ../aio/{}: change it there.\n"

_WORDS = (
    (r"\basync with asyncio\b", "with asyncio"),
    (r"\basync (def|with|for) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclosing\b", "closing"),
    (r"\binferd\.client\.aio\b", "inferd.client.sync"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bAn? (?=(Client|ConnectionPool|Reader)\b)", "A "),
)


def generated(source: str, name: str) -> str:
    """Return the synchronous twin of `source`, the text of the module `name`."""
    for pattern, replacement in _WORDS:
        source = re.sub(pattern, replacement, source)
    text = NOTE.format(name) + source
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / name), "-"]
        done = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Build, or with --check compare; return the exit status."""
    stale = []
    sources = [path for path in sorted((FOLDER / "aio").glob("*.py")) if path.name not in WRITTEN]
    for source in sources:
        target = FOLDER / "sync" / source.name
        text = generated(source.read_text(encoding="utf-8"), source.name)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(target)
        if "--check" not in arguments:
            target.write_text(text, encoding="utf-8")
    names = {path.name for path in sources} | WRITTEN
    stale += [path for path in (FOLDER / "sync").glob("*.py") if path.name not in names]
    if "--check" not in arguments:
        return 0
    for target in stale:
        print(f"out of date: {target.name}; run python tools/build_sync_client.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
