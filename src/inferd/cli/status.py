"""inferd status: shows the running servers of several processes."""

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.fleet.status import ServerStatus

HELP = """\
inferd status [--port PORT] [--json]

Shows the servers of this user that have several processes (inferd serve --workers N): where they
listen, how many model versions are in which state, and of each process

  process      its number; while one is replaced there are two of that number
  state        loading models, joining (it makes the changes that the others made), ready, or
               draining (it finishes what is under way)
  connections  those that it has
  restarts     how often it was started again after it had ended
  rss          its memory; what processes share is counted in each

--port PORT  only the server that has this port
--json       a list of servers as one line of JSON

The exit code is 1 if there is no such server.
"""

_COLUMNS = "{:>7}  {:>7}  {:8}  {:>11}  {:>8}  {:>10}  {:>9}"
_NAMES = ("process", "pid", "state", "connections", "restarts", "uptime", "rss")


def run(arguments: Sequence[str]) -> int:
    """Print the servers. Return 0, or 1 if there is none, 2 for wrong arguments."""
    from inferd.cli.running import read_words, running_servers

    try:
        words = read_words(arguments, ("--port",), ("--json",))
    except InvalidConfig as error:
        sys.stderr.write(f"inferd status: {error.message}\nSee inferd status --help.\n")
        return 2
    servers = running_servers(words.get("--port"), with_models=True)
    if "--json" in words:
        import msgspec

        text = msgspec.json.encode([one.status for one in servers]).decode() + "\n"
    else:
        text = "\n".join("".join(_lines(one.status)) for one in servers)
    sys.stdout.write(text)
    return 0


def _lines(status: "ServerStatus") -> Iterator[str]:
    since = datetime.fromtimestamp(status.since_s).astimezone().isoformat(" ", "seconds")
    where = [f"{protocol} {number}" for protocol, number in status.ports.items()]
    where += [f"unix:{path}" for path in status.sockets]
    ending = ", ending" if status.is_stopping else ""
    yield f"inferd {status.version}, pid {status.pid}, since {since}{ending}\n"
    yield f"  listens: {', '.join(where) or 'no more'}\n"
    if status.model_counts is not None:
        counts = [f"{count} {state}" for state, count in sorted(status.model_counts.items())]
        yield f"  models:  {', '.join(counts) or 'none'}\n"
    if (last := status.replacement) is not None:
        done = f"{last.replaced_count} of {last.process_count} processes"
        yield f"  reload:  {last.state.value}, {done} replaced\n"
    yield _COLUMNS.format(*_NAMES) + "\n"
    for one in status.processes:
        numbers = one.slot, one.pid, one.state, one.connection_count, one.restart_count
        memory = f"{one.rss_bytes / 2**20:.0f} MB"
        yield _COLUMNS.format(*numbers, _duration(one.uptime_s), memory) + "\n"


def _duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest_s}s" if minutes else f"{rest_s}s"
