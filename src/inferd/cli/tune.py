"""inferd tune: finds the settings with which a model serves most under a goal."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.cli.parser import CommandParser, count_of, positive_seconds
from inferd.cli.remote.requests import drawn_inputs
from inferd.cli.terminal import Board, ProgressLine, board_text, columns
from inferd.errors import InferdError, InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from inferd.client import Client
    from inferd.tensor.tensor import Tensor
    from inferd.tune.front import TunePoint
    from inferd.tune.session import Session

_DESCRIPTION = """\
Finds the settings of a model with which it serves most: instances, threads, batches, delays, in
the server's process or in workers, execution provider. MODEL is its folder in a repository, its
file, or a URL that it is fetched from (hf://...). Each candidate is measured in a server of its
own on this machine; about a tenth of them are.

  inferd tune models/resnet --goal p99=20ms
  inferd tune models/resnet --goal p99=20ms,memory=2GB --concurrency 32 --html tuned.html --write
"""

_MORE = """\
A goal has limits: p50, p90, p95 or p99 in us, ms or s, and memory in MB or GB (of the whole
server). Of the settings that hold them, those with the most requests a second are best; if none
holds them, those that come nearest. Without a goal only the requests count.

The load is --concurrency requests at a time: choose what you expect. Without --input, inputs are
drawn at random. What clients may send does not change: max_batch_size never becomes smaller.

--write puts the best into config.pbtxt; the file that was there becomes config.pbtxt.old. Ctrl-C
ends the search, and what was measured counts. The exit code is 0; 1 if nothing could be measured,
or the goal does not hold; 2 for wrong arguments; 130 after Ctrl-C.
"""


def run(arguments: Sequence[str]) -> int:
    """Tune a model and show the result. Return the exit code."""
    given = parser().read(arguments)
    if isinstance(given, int):
        return given
    try:
        return _run(given)
    except InferdError as error:
        sys.stderr.write(f"inferd tune: {error.message}\n")
        return 2 if isinstance(error, InvalidConfig | InvalidRequest) else 1


def parser() -> CommandParser:
    """Return what reads the arguments."""
    made = CommandParser("inferd tune", _DESCRIPTION, _MORE)
    made.add_argument("model", metavar="MODEL", help="its folder, file or URL")
    made.option("--goal", "LIMITS", "such as p99=20ms,memory=2GB", "")
    made.section("the load")
    made.option("--concurrency -c", "N", "requests at a time [16]", 16, count_of)
    made.option("--seconds", "S", "for each candidate [2]", 2.0, positive_seconds)
    made.switch("--grpc", "over gRPC, not REST")
    made.option("--processes", "N", "that send requests [1]", 1, count_of)
    made.repeated("--input -i", "INPUT", "see inferd infer")
    made.repeated("--shape", "NAME:D,D", "dims that may be any")
    made.section("the search")
    made.option("--trials", "N", "the most candidates [a tenth of all]", None, count_of)
    made.option("--budget", "S", "the most seconds in all [any]", None, positive_seconds)
    made.option("--cores", "N", "of this machine, for the model [all]", None, count_of)
    made.repeated("--provider", "NAME", "an accelerator to try, too")
    made.section("the result")
    made.switch("--write", "into the model's config.pbtxt")
    made.option("--html", "FILE", "write a page with a plot", "")
    made.switch("--json", "JSON on standard output, no table")
    return made


def _run(given: argparse.Namespace) -> int:
    from inferd.tune.goal import read_goal
    from inferd.tune.measuring import TuneLoad
    from inferd.tune.session import Session, TuneTask
    from inferd.values.output import write_whole

    goal = read_goal(given.goal)
    _check_places(given)  # before the search, which takes minutes
    repository, model, is_alone = _model_at(given.model)
    load = TuneLoad(given.concurrency, given.seconds, processes=given.processes, grpc=given.grpc)
    cores = given.cores or os.cpu_count() or 1
    limits = (given.trials, given.budget)
    wanted = TuneTask(repository, model, goal, load, cores, given.provider, *limits, is_alone)
    # From here on Ctrl-C raises KeyboardInterrupt; until now it ended the process: see main.py.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ProgressLine() as line:
        session = Session(wanted, _inputs(model, given), line.show)
        interrupted = session.run()
    best = session.best
    if interrupted and best is None:
        sys.stderr.write("inferd tune: interrupted before anything was measured\n")
        return 130
    if given.json:
        sys.stdout.write(_json(session))
    else:
        _show(session)
    if given.html:
        write_whole(Path(given.html), session.page().encode())
        sys.stderr.write(f"written: {given.html}\n")
    if best is None:
        return 1
    if given.write:
        session.write()
        sys.stderr.write(f"written: {wanted.place / 'config.pbtxt'}\n")
    if interrupted:
        return 130
    return 0 if goal.worst(best.cost) <= 1 else 1


def _check_places(given: argparse.Namespace) -> None:
    """Raise InvalidConfig if what is found could not be written."""
    from inferd.repository.repositories import check_not_fetched

    if given.write:
        check_not_fetched(given.model)
    for place in (given.html and Path(given.html).parent, given.write and Path(given.model)):
        if place and not (place.is_dir() and os.access(place, os.W_OK)):
            raise InvalidConfig(f"nothing can be written to {place.absolute()}")


def _model_at(text: str) -> tuple[Path, str, bool]:
    """Return the repository, the model's name, and whether the model is all that is there.

    A folder's neighbours may be steps of an ensemble. Raises InvalidConfig and NotLoadable.
    """
    from inferd.repository.fetch.url import model_url
    from inferd.repository.repositories import Repositories, fetched_path

    path = fetched_path(text).absolute()
    if model_url(text) is None and not path.is_file():
        return path.parent, path.name, False
    names = list(Repositories([path]).places())
    if len(names) != 1:
        raise InvalidConfig(f"there are {len(names)} models at {text}, expected one")
    return path, names[0], True


def _inputs(model: str, given: argparse.Namespace) -> "Callable[[Client], list[Tensor]]":
    """Return what gives the inputs of a request, by asking a server that has the model."""

    def inputs(client: "Client") -> "list[Tensor]":
        from inferd.values.fitting import fitted
        from inferd.values.source import read_inputs

        metadata = client.metadata(model)
        if given.input:
            return fitted(read_inputs(given.input), metadata.inputs).tensors
        return drawn_inputs(client, metadata, "", given.shape)

    return inputs


_HEAD = ("", "requests/s", "p50", "p99", "memory", "settings")


def _row(mark: str, point: "TunePoint") -> tuple[str, ...]:
    cost = point.cost
    p50, p99 = (f"{cost.latency_ms[name]:.3g} ms" for name in ("p50", "p99"))
    return mark, f"{cost.per_s:,.0f}", p50, p99, f"{cost.memory_bytes / 1e6:,.0f} MB", point.text


def _show(session: "Session") -> None:
    best = session.best
    first = session.points[:1]
    # The settings as they are, which the search measures first.
    rows = [_row("before", one) for one in first]
    rows += [_row("best" if one == best else "", one) for one in session.front]
    count = len(session.points)
    title = (
        f"{count} of {len(session.space.candidates)} candidates measured; none beats these in both:"
    )
    lines = [f"could not be measured: {one}" for one in session.failures]
    if not session.has_batches:
        lines.append("batches were not tried: see inferd_joining_reason in its configuration")
    if best is not None and session.task.goal.worst(best.cost) > 1:
        lines.append(f"none holds the goal {session.task.goal.text}; this is the nearest")
    board = Board([(title, _HEAD, rows)] if rows else [], lines)
    sys.stdout.write(board_text(board, columns()))


def _json(session: "Session") -> str:
    def plain(point: "TunePoint") -> dict[str, object]:
        return {
            "settings": dict(point.settings),
            "requests_per_s": point.cost.per_s,
            "latency_ms": point.cost.latency_ms,
            "memory_bytes": point.cost.memory_bytes,
        }

    best = session.best
    document = {
        "model": session.task.model,
        "goal": session.task.goal.text,
        "candidates": len(session.space.candidates),
        "best": plain(best) if best else None,
        "holds": best is not None and session.task.goal.worst(best.cost) <= 1,
        "measured": [plain(one) for one in session.points],
        "failures": session.failures,
    }
    return json.dumps(document) + "\n"
