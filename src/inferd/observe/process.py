"""Metrics of the server's process, under the names Prometheus's own client libraries use.

They are read from Linux's /proc; elsewhere there are none.
"""

import os
from pathlib import Path

from inferd import system
from inferd.observe.family import Family

_UTIME, _STIME, _START, _VSIZE, _RSS = 11, 12, 19, 20, 21
"""Fields of /proc/PID/stat (proc(5)), counted from the one after the program's name."""


def process_families(proc: Path = Path("/proc")) -> list[Family]:
    """Return the metrics of this process; `proc` is where /proc is mounted.

    Those of several processes are added up; the server began with the first of them.
    """
    folder = proc / "self"
    try:
        # The program's name is in parentheses and may contain anything, even parentheses.
        stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        # When the machine started, in seconds since 1970.
        boot_s = int(_line((proc / "stat").read_text(), "btime ")[1])
        open_count = len(os.listdir(folder / "fd"))
        limit = _line((folder / "limits").read_text(), "Max open files")[3]
        most_open = float(limit.replace("unlimited", "inf"))
    except (OSError, ValueError):
        return []
    ticks_per_s, page_bytes = system.CLOCK_TICKS_PER_S, system.PAGE_BYTES
    cpu_s = (int(stat[_UTIME]) + int(stat[_STIME])) / ticks_per_s
    started_s = boot_s + int(stat[_START]) / ticks_per_s
    rss_bytes, vsize_bytes = int(stat[_RSS]) * page_bytes, int(stat[_VSIZE])
    rows = [
        ("cpu_seconds_total", "counter", "CPU time of the process, in seconds", cpu_s),
        ("start_time_seconds", "gauge", "When the process began, in seconds since 1970", started_s),
        ("resident_memory_bytes", "gauge", "Memory the process holds, in bytes", rss_bytes),
        ("virtual_memory_bytes", "gauge", "Addresses the process has taken, in bytes", vsize_bytes),
        ("open_fds", "gauge", "Open files and sockets", open_count),
        ("max_fds", "gauge", "Files and sockets that may be open", most_open),
    ]
    return [
        Family(
            f"process_{name}",
            kind,
            help,
            [("", value)],
            "least" if name == "start_time_seconds" else None,
        )
        for name, kind, help, value in rows
    ]


def _line(text: str, start: str) -> list[str]:
    """Return the words of the one line in `text` that begins with `start`."""
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line.split()
