"""What it costs to note each run in the crash record: nanoseconds a run, with and without an id.

    python bench/marks.py

The code between the clocks is that of Execution.run_now. The fields of the mark are looked up
before: in compiled code, where runs are noted, that costs next to nothing.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from inferd.core.request import InferRequest
from inferd.observe.crash.mark import RunMark, shown_ids
from inferd.observe.crash.record import CrashRecord, open_private

RUNS = 10_000
ROUNDS = 200


def marked(mark: RunMark, requests: tuple[InferRequest, ...]) -> None:
    """Mark RUNS runs of nothing."""
    note, idle = mark.note, mark.idle
    for _ in range(RUNS):
        try:
            note.value = requests[0].id
        except ValueError:
            note.value = shown_ids(requests)
        note.value = idle


def unmarked(mark: RunMark, requests: tuple[InferRequest, ...]) -> None:
    """Do all the rest of `marked`."""
    for _ in range(RUNS):
        requests[0].id  # noqa: B018


def main() -> None:
    """Print a row for runs without an id, and one for runs with one."""
    with tempfile.TemporaryDirectory() as folder:
        descriptor = open_private(Path(folder) / "a.record")
        mark = CrashRecord(descriptor).claim("model", "1")
        for what, id_ in (("without an id", ""), ("with an id of 36 characters", "x" * 36)):
            times: dict[str, int] = {}
            for _ in range(ROUNDS):
                for work in (marked, unmarked):
                    began_ns = time.thread_time_ns()
                    work(mark, (InferRequest("model", id=id_),))
                    took_ns = time.thread_time_ns() - began_ns
                    times[work.__name__] = min(took_ns, times.get(work.__name__, took_ns))
            each_ns = (times["marked"] - times["unmarked"]) / RUNS
            sys.stdout.write(f"a run noted, {what}: {each_ns:.0f} ns\n")
        os.close(descriptor)


if __name__ == "__main__":
    main()
