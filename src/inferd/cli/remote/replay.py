"""inferd replay: sends the requests of a payload log again, and compares the answers."""

import argparse
import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.cli.parser import number_of, positive_seconds
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.replay.comparison import Outcome, Replay

HELP = """\
inferd replay LOG... --url URL [options]

Sends the requests in the files of a payload log (inferd serve --payload-log) to a server of V2, one
after the other, and compares its answers with those in the log: lines of JSON, or .parquet with
inferd[tables]. Give rotated files oldest first.

  --url URL             the server: http://HOST:PORT, or https://
  --tolerance X         how much floats may differ, as a share of them
                        [as much as rounding does: 1e-4 for FP32]
  --header NAME:VALUE   sent with each request, such as an API key; may be repeated
  --timeout SECONDS     how long the server may take for an answer [60]
  --json                print the counts as JSON, and no lines

Requests that were cut when they were logged are not sent, and named. Answers of models that give
several are not compared. The exit code is 0 if everything was sent and all answers are the same, 1
if not, or if the server cannot be used, and 2 for wrong arguments.

  inferd replay payloads.jsonl.1 payloads.jsonl --url http://127.0.0.1:8000
"""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: a token (RFC 9110, 5.6.2)."""

_MOST_LINES = 20
_PROGRESS_EVERY = 10


def run(arguments: Sequence[str]) -> int:
    """Replay a log. Return 0, 1 if something differs or fails, 2 for wrong arguments."""
    try:
        given = _parser().parse_args(arguments)
        headers = _headers(given.header)
    except SystemExit:  # argparse has said what is wrong
        sys.stderr.write("See inferd replay --help.\n")
        return 2
    from inferd.replay.comparison import Replay
    from inferd.replay.entries import PayloadReader
    from inferd.replay.server import ReplayTarget, Unreachable

    try:
        target = ReplayTarget(given.url, headers, given.timeout)
    except InvalidConfig as error:
        sys.stderr.write(f"inferd replay: {error.message}\nSee inferd replay --help.\n")
        return 2
    reader = PayloadReader([Path(path) for path in given.log])
    replay = Replay(reader, target, given.tolerance)
    report = _Report(len(reader), is_quiet=given.json)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = None
    try:
        replay.run(report.note)
    except Unreachable as error:
        report.end()
        sys.stderr.write(f"inferd replay: {error}\n")
        code = 1
    except KeyboardInterrupt:
        report.end()
        sys.stderr.write("inferd replay: interrupted\n")
        code = 128 + signal.SIGINT
    target.close()
    report.end()
    _sum_up(replay, reader.faults, as_json=given.json)
    if code is not None:
        return code
    return 0 if replay.is_same and not reader.faults else 1


def _parser() -> argparse.ArgumentParser:
    usage = "inferd replay LOG... --url URL [options]"
    parser = argparse.ArgumentParser(
        "inferd replay", usage=usage, add_help=False, allow_abbrev=False
    )
    parser.add_argument("log", metavar="LOG", nargs="+")
    parser.add_argument("--url", required=True)
    parser.add_argument("--tolerance", type=_tolerance)
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--timeout", type=positive_seconds, default=60.0)
    parser.add_argument("--json", action="store_true")
    return parser


def _tolerance(text: str) -> float:
    number = number_of(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not from 0 on")
    return number


def _headers(texts: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for text in texts:
        name, colon, value = text.partition(":")
        # A line break would begin another header; http.client sends values as Latin-1.
        is_value = value.isprintable() and all(char <= "\xff" for char in value)
        if not colon or not _NAME.fullmatch(name.strip()) or not is_value:
            sys.stderr.write("inferd replay: --header is none, expected NAME:VALUE\n")
            raise SystemExit(2)
        found[name.strip()] = value.strip()
    return found


class _Report:
    """Tells what is not as it was, and on a terminal how far it is."""

    def __init__(self, count: int, *, is_quiet: bool) -> None:
        self._count = count
        self._is_quiet = is_quiet
        self._has_progress = sys.stderr.isatty() and not is_quiet
        self._done = 0
        self._line_count = 0

    def note(self, outcome: "Outcome") -> None:
        """Tell an outcome."""
        self._done += 1
        if outcome.text and not self._is_quiet:
            self._line_count += 1
            if self._line_count <= _MOST_LINES:
                # The line of progress is taken away before another is written.
                self.end()
                sys.stdout.write(f"{outcome.kind}: {_printable(str(outcome))}\n")
        if self._has_progress and (self._done % _PROGRESS_EVERY == 0 or self._done == self._count):
            sys.stderr.write(f"\r{self._done} of {self._count}")
            sys.stderr.flush()

    def end(self) -> None:
        """Remove the line of progress."""
        if self._has_progress:
            sys.stderr.write("\r" + " " * 30 + "\r")
        if self._line_count > _MOST_LINES and self._done == self._count:
            sys.stdout.write(f"and {self._line_count - _MOST_LINES} more\n")
            self._line_count = 0


def _printable(text: str) -> str:
    # Texts of clients and servers, which a terminal would obey.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _sum_up(replay: "Replay", faults: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(replay.counts | {"unreadable": len(faults)}) + "\n")
        return
    for fault in faults[:_MOST_LINES]:
        sys.stdout.write(f"unreadable: {_printable(fault)}\n")
    if len(faults) > _MOST_LINES:
        sys.stdout.write(f"and {len(faults) - _MOST_LINES} more\n")
    counts = replay.counts
    sys.stdout.write(
        f"{replay.sent_count} sent: {counts['same']} answers the same, "
        f"{counts['different']} different, {counts['failed']} failed, "
        f"{counts['unanswered']} without an answer to compare\n"
    )
    if counts["cut"]:
        sys.stdout.write(f"{counts['cut']} were cut when they were logged\n")
