"""inferd bench: measures a server under load."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.cli.parser import (
    CommandParser,
    count_of,
    model_of,
    number_of,
    positive_seconds,
    seed_of,
)
from inferd.cli.remote.server import (
    SERVER_HELP,
    add_server_arguments,
    client_of,
    client_options,
    run_command,
    url_of,
)
from inferd.cli.terminal import Board, ProgressLine, board_text, columns
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.bench.plan import LoadProgress, Point
    from inferd.bench.result import PointResult, RunResult
    from inferd.cli.remote.requests import Prepared

DEFAULT_CONCURRENCY = "1:16"

_DESCRIPTION = """\
Loads a model of any V2 server and says how quickly it answers: percentiles with the interval
they lie in, where the server says the time went, and its CPU time, if it runs on this machine.

  inferd bench resnet                               1, 2, 4, 8, 16 requests at a time
  inferd bench resnet --url grpc://host:8001 --concurrency 1:64 --html report.html
  inferd bench resnet --rate 100:500:100 --poisson  requests a second, as of many users
  inferd bench llm --stream --input prompt=hello    time to the first answer
"""

_MORE = f"""\
With --concurrency, so many requests are under way at a time, and the next is sent when one is
answered. With --rate, requests are sent at their times, whether others are answered or not, and
a latency counts from when a request was due: what a slow server makes wait is not left out.

Without --input, the inputs are drawn at random; --shape gives the dims that the model leaves open.
Where the load generator is at its own limit, or its own time is much of a latency, no latency is
given: a Python program cannot time a server that answers in 12 µs. --processes moves that limit.

{SERVER_HELP}
Ctrl-C ends the measurement, and what was measured is shown. The exit code is 0; 1 if nothing was
answered, or something else than the model answered; 2 for wrong arguments; 130 after Ctrl-C.
"""


def run(arguments: Sequence[str]) -> int:
    """Measure a server and show the result. Return the exit code."""
    return run_command(parser(), arguments, _run, "interrupted before anything was measured")


def parser() -> CommandParser:
    """Return what reads the arguments."""
    made = CommandParser("inferd bench", _DESCRIPTION, _MORE)
    made.add_argument("model", metavar="MODEL", type=model_of)
    made.section("the load")
    made.option(
        "--concurrency -c",
        "N",
        f"requests at a time: 8, or 1,2,8, or 1:64 (doubling) [{DEFAULT_CONCURRENCY}]",
    )
    made.option("--rate -r", "R", "requests a second, in the same forms")
    made.option("--speed", "X", "of --requests: at the times they came, X times as fast")
    made.switch("--poisson", "at a rate: at random times, as of many users")
    made.option("--seconds", "S", "for each load [5]", 5.0, positive_seconds)
    made.option("--warmup", "S", "before each, not counted [1]", 1.0, _seconds)
    made.option("--processes", "N", "that send requests [1]", 1, count_of)
    made.option("--connections", "N", "at a rate: the most connections [256]", 256, count_of)
    made.option("--seed", "N", "of random times and inputs", 0, seed_of)
    made.section("the requests")
    made.repeated("--input -i", "INPUT", "see inferd infer")
    made.option(
        "--requests",
        "FILE",
        "V2 requests, a line of JSON each, or a payload log; in place of --input",
    )
    made.repeated("--shape", "NAME:D,D", "dims that may be any")
    made.option("--batch", "N", "rows a request [1]", 1, count_of)
    made.option("--varied", "N", "so many different random requests", 1, count_of)
    made.option("--version", "V", "the model's version", "")
    made.option("--outputs", "A,B", "only these are wanted", "")
    made.switch("--text", "JSON over REST, no binary data")
    made.switch(
        "--shared-memory",
        "inputs and outputs lie in memory of this machine, in place of the socket",
    )
    made.switch("--stream", "requests whose answers come as a stream")
    made.option("--sequence-length", "N", "sequences of N requests", 0, count_of)
    made.section("the result")
    made.switch("--json", "JSON on standard output, no table")
    made.option("--output -o", "FILE", "write the JSON there", "")
    made.option("--html", "FILE", "write a page with plots", "")
    add_server_arguments(made)
    return made


def _seconds(text: str) -> float:
    value = number_of(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1e6")
    return value


def _run(given: argparse.Namespace) -> int:
    from inferd.bench.cpu import processes_at
    from inferd.bench.measure import ServerAccount
    from inferd.bench.result import as_json
    from inferd.bench.sweep import speeds
    from inferd.cli.remote.requests import prepared
    from inferd.client.settings import read_settings
    from inferd.values.output import write_whole

    points = _points(given)
    # Before the measurement: a mistake is not told after minutes.
    for file in (given.output, given.html):
        _check_place(file)
    # The options are those of ClientOptions by name; argparse has no types.
    settings = read_settings(url_of(given), client_options(given))  # type: ignore[arg-type]
    most = max(one.concurrency or one.connections for one in points)
    with client_of(given) as client, prepared(client, settings, most, given) as load:
        # The times of recorded requests are known once their file is read.
        if given.speed:
            points = speeds(given.speed, load.times_s, points[0])
        pids = processes_at(settings.target.host, settings.target.port)
        account = ServerAccount(lambda: client.statistics(given.model, given.version), pids)
        result = _measured(load, points, account, given)
    if given.output:
        write_whole(Path(given.output), as_json(result))
    if given.html:
        from inferd.bench.page import page

        write_whole(Path(given.html), page(result).encode())
    if given.json:
        sys.stdout.write(as_json(result).decode())
    else:
        _show(result, given)
    if not result.is_whole:
        # Also for a run that was interrupted and has results, so that scripts can tell.
        return 130
    return 0 if any(one.answered for one in result.points) else 1


def _points(given: argparse.Namespace) -> list["Point"]:
    """Return the loads, with --speed one that has no times yet. Raises InvalidConfig."""
    from inferd.bench.plan import Point
    from inferd.bench.sweep import concurrencies, numbers, rates

    if sum(map(bool, (given.rate, given.concurrency, given.speed))) > 1:
        raise InvalidConfig("--rate, --concurrency and --speed are ways to load a server: give one")
    if given.speed and not given.requests:
        raise InvalidConfig("--speed is for the recorded requests of --requests")
    if given.poisson and not given.rate:
        raise InvalidConfig("--poisson is for requests at a rate: give --rate")
    if given.shared_memory and (given.stream or given.sequence_length or given.text):
        msg = "--shared-memory is for requests with one answer each: no --stream, --text, sequences"
        raise InvalidConfig(msg)
    if given.sequence_length and (given.rate or given.speed):
        raise InvalidConfig("a sequence goes on when a request is answered: give --concurrency")
    base = Point(
        seconds=given.seconds,
        warmup_s=given.warmup,
        seed=given.seed,
        arrivals="poisson" if given.poisson else "constant",
        connections=given.connections,
    )
    if given.speed:
        numbers(given.speed, "--speed")
        return [base]
    if given.rate:
        return rates(given.rate, base)
    return concurrencies(given.concurrency or DEFAULT_CONCURRENCY, base)


def _check_place(file: str) -> None:
    from inferd.values.output import is_stream

    folder = Path(file).parent
    if not file or is_stream(Path(file)):
        return
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise InvalidConfig(f"{file} cannot be written there: name another folder than {folder}")


def _measured(
    load: "Prepared", points: Sequence["Point"], account: Any, given: argparse.Namespace
) -> "RunResult":
    """Measure all points; Ctrl-C ends that early."""
    from inferd.bench.measure import measure
    from inferd.bench.processes import Generators
    from inferd.bench.result import RunResult
    from inferd.bench.sweep import total_seconds

    began = datetime.now().astimezone().isoformat(" ", "seconds")
    found: list[PointResult] = []
    whole_s, done_s = total_seconds(points), 0.0
    is_whole = True
    with ProgressLine() as line, Generators(load.plan, given.processes) as generators:
        for point in points:
            shown = _shown(line, done_s / whole_s, (point.warmup_s + point.seconds) / whole_s)
            try:
                found.append(measure(generators, load.plan, point, account, shown))
            except KeyboardInterrupt:
                is_whole = False
                break
            done_s += point.warmup_s + point.seconds
            if not found[-1].is_whole:
                is_whole = False
                break
    # Interrupted before there was anything to show.
    if not found:
        raise KeyboardInterrupt
    return RunResult(
        given.model, given.version, load.url, load.server, load.request,
        given.processes, os.cpu_count() or 1, began, found, is_whole,
    # In the order of the fields, several in a line.
    )  # fmt: skip


def _shown(
    line: ProgressLine, before: float, part: float
) -> Callable[["Point", float, Sequence["LoadProgress"]], None]:
    """Return what shows a point while it is measured: how far it is, and what it was like last."""

    def show(point: "Point", share: float, now: Sequence["LoadProgress"]) -> None:
        # A part of the latencies, so this is about how it goes, and is not what is reported.
        recent = sorted(one for each in now for one in each.latencies_ns)
        median = f", {recent[len(recent) // 2] / 1e6:.3g} ms" if recent else ""
        count = sum(one.answered for one in now)
        errors = sum(one.errors for one in now)
        failed = f", {errors} errors" if errors else ""
        words = f"{point.name}: {count} answers{median}{failed}"
        line.show(before + part * min(max(share, 0.0), 1.0), words)

    return show


def _show(result: "RunResult", given: argparse.Namespace) -> None:
    from inferd.bench import table

    board = Board([(table.title(result), table.HEAD, table.rows(result.points))], [])
    sys.stdout.write(board_text(board, columns()))
    for text in table.remarks(result):
        sys.stdout.write(text + "\n")
    for file in (given.output, given.html):
        if file:
            sys.stdout.write(f"written: {file}\n")
