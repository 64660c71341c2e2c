"""Writes the tables of calls of docs/reference/extensions.md.

    python tools/build_calls_doc.py            write them
    python tools/build_calls_doc.py --check    fail if they are out of date

In each section of the page, the rows of the table whose first column is REST are those of the calls
in inferd.api.v2.calls that name the section.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from inferd.api.call import ApiCall
from inferd.api.v2.calls import CALLS

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "extensions.md"

_SECTION = re.compile(r"(?<=^## )([^\n]*)(\n.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^(\| REST .*\n\|[-| ]*\n)((?:\|.*\n)*)", re.MULTILINE)


def build(page: str, calls: Sequence[ApiCall] = CALLS) -> str:
    """Return `page` with the rows of `calls`. Exits if a call has no place there."""
    missing = {call.section for call in calls}

    def written(found: re.Match[str]) -> str:
        section, text = found.groups()
        table = _TABLE.search(text)
        if table is None:
            return found[0]
        missing.discard(section)
        columns = table[1].partition("\n")[0].count("|") - 1
        rows = lines((call for call in calls if call.section == section), columns)
        return section + text[: table.start(2)] + "".join(rows) + text[table.end(2) :]

    page = _SECTION.sub(written, page)
    if missing:
        sys.exit(f"{TARGET.name} has no table of calls in {', '.join(sorted(missing))}")
    return page


def lines(calls: Iterable[ApiCall], columns: int) -> Iterator[str]:
    """Return a row for each way to reach the calls over REST."""
    for call in calls:
        rpcs = ", ".join(rpc.name for rpc in call.rpcs)
        for route in [f"`{rest.verb} {rest.path}`" for rest in call.rest] or [""]:
            cells = (route, rpcs, call.answers)[:columns]
            yield "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page; with --check, only return 1 if it is out of date."""
    page = TARGET.read_text(encoding="utf-8")
    built = build(page)
    if "--check" not in arguments:
        TARGET.write_text(built, encoding="utf-8")
    elif built != page:
        sys.stderr.write(f"docs/reference/{TARGET.name} is out of date: run make docs\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
