"""inferd models, load, unload, stats: what any V2 server has, and what it does with it."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.cli.parser import CommandParser, model_of
from inferd.cli.remote.server import (
    SERVER_HELP,
    add_server_arguments,
    client_of,
    code_of,
    failure_text,
    url_of,
)
from inferd.cli.terminal import Board, interruptible, screen
from inferd.errors import InferdError, InvalidConfig, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from inferd.client import Client
    from inferd.core.metadata import IndexEntry
    from inferd.observe.statistics import Duration, ModelStatistics

WATCH_S = 1.0

_DESCRIPTIONS = {
    "models": """\
Shows the models of a server, which of their versions can be used, and why others cannot.
With a MODEL: its inputs and outputs. The exit code is 1 if the server has no such model.
""",
    "load": """\
Loads models from the repository of a server, or loads them anew. inferd and Triton need
--model-control-mode=explicit for that.
""",
    "unload": """\
Takes models of a server out of use; their files stay.
""",
    "stats": """\
Shows what a server has counted for each version of its models: requests and failures, and
how long a request took on average: all in all, in the queue, and in the model. With --watch
those of the last second.
""",
}


def run(arguments: Sequence[str]) -> int:
    """Do what the verb, the first of `arguments`, says. Return the exit code."""
    verb, *words = arguments
    given = parser(verb).read(words)
    if isinstance(given, int):
        return given
    given.verb = verb
    try:
        with client_of(given) as client:
            return interruptible(lambda: _VERBS[verb](client, given))
    except InferdError as error:
        sys.stderr.write(f"inferd {verb}: {failure_text(error, url_of(given))}\n")
        return code_of(error)


def parser(verb: str) -> CommandParser:
    """Return what reads the arguments."""
    made = CommandParser(f"inferd {verb}", _DESCRIPTIONS[verb], SERVER_HELP)
    if verb in ("load", "unload"):
        made.add_argument("models", nargs="+", metavar="MODEL", type=model_of)
    else:
        made.add_argument("model", nargs="?", default="", metavar="MODEL")
        made.switch("--watch", "go on showing it, until Ctrl-C")
    if verb == "load":
        made.option(
            "--config", "FILE", "a configuration in JSON, in place of that in the repository"
        )
    if verb == "unload":
        made.switch(
            "--dependents",
            "also models that were loaded only for its sake, as those of an ensemble",
        )
    made.switch("--json", "JSON, a line each time")
    add_server_arguments(made)
    return made


def _models(client: "Client", given: argparse.Namespace) -> int:
    if given.model:
        return _shown(given, lambda: _model(client, given.model))

    def look() -> tuple[Board, object]:
        rows = client.models()
        return models_board(rows, client.url), [_index_row(row) for row in rows]

    return _shown(given, look)


def models_board(rows: Sequence["IndexEntry"], url: str) -> Board:
    """Return the models of a repository as a table."""
    table = [
        (row.name, row.version or "-", row.state.value if row.state else "-", row.reason)
        for row in rows
    ]
    count = len({row.name for row in rows})
    title = f"{url}: {count} model{'' if count == 1 else 's'}"
    return Board([(title, ("model", "version", "state", "reason"), table)], [])


def _index_row(row: "IndexEntry") -> dict[str, str]:
    state = row.state.value if row.state else ""
    return {"name": row.name, "version": row.version, "state": state, "reason": row.reason}


def _model(client: "Client", model: str) -> tuple[Board, object]:
    from inferd.tensor.tensor import dims_text

    found = client.metadata(model)
    document: dict[str, Any] = {
        "name": found.name,
        "versions": found.versions,
        "platform": found.platform,
    }
    rows = []
    for kind, ports in (("input", found.inputs), ("output", found.outputs)):
        document[f"{kind}s"] = [
            {"name": one.name, "datatype": one.datatype.value, "shape": list(one.shape)}
            for one in ports
        ]
        rows += [(kind, one.name, one.datatype.value, dims_text(one.shape)) for one in ports]
    versions = ", ".join(found.versions) or "none"
    title = f"{found.name}, {found.platform or 'no platform'}, versions {versions}"
    return Board([(title, ("", "name", "datatype", "dims"), rows)], []), document


def _load(client: "Client", given: argparse.Namespace) -> int:
    config = None
    if given.config:
        config = _config(given.config)
        if len(given.models) > 1:
            raise InvalidConfig("--config is the configuration of one model; name only that")
    return _each(client, given, lambda model: client.load(model, config=config))


def _unload(client: "Client", given: argparse.Namespace) -> int:
    return _each(client, given, lambda model: client.unload(model, dependents=given.dependents))


def _config(file: str) -> str:
    try:
        text = Path(file).read_text()
        # Read here, so that a slip is told with the file's name and not by the server.
        json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"--config {file} cannot be read as JSON: {getattr(error, 'strerror', None) or error}"
        raise InvalidConfig(msg) from error
    return text


def _each(client: "Client", given: argparse.Namespace, act: Callable[[str], None]) -> int:
    """Do something with each of the models; what fails for one does not keep it from the others."""
    from inferd.client.errors import ServerError

    results = []
    code = 0
    for model in given.models:
        began_s = time.monotonic()
        error = ""
        try:
            act(model)
        # What is wrong is this model, or its name; anything else ends the command.
        except (ServerError, InvalidRequest) as failure:
            error = failure_text(failure, client.url)
            code = 1
        seconds = round(time.monotonic() - began_s, 3)
        results.append({"model": model, "ok": not error, "error": error, "seconds": seconds})
        if given.json:
            continue
        if error:
            sys.stderr.write(f"inferd {given.verb}: {model}: {error}\n")
        else:
            sys.stdout.write(f"{model} {given.verb}ed in {seconds:g} s\n")
    if given.json:
        _write_json(results)
    return code


def _stats(client: "Client", given: argparse.Namespace) -> int:
    before: dict[tuple[str, str], ModelStatistics] = {}
    before_s = 0.0

    def look() -> tuple[Board, object]:
        nonlocal before, before_s
        import msgspec

        rows, now_s = _statistics(client, given.model), time.monotonic()
        # The first look is since the models were loaded, and has no rate.
        board = stats_board(rows, before, now_s - before_s if before_s else 0.0)
        before, before_s = {(row.name, row.version): row for row in rows}, now_s
        return board, msgspec.to_builtins(rows)

    return _shown(given, look)


def _statistics(client: "Client", model: str) -> "list[ModelStatistics]":
    from inferd.client.errors import ClientError, ServerError

    try:
        return client.statistics(model)
    except ServerError as error:
        # 404 has two meanings: no such model, or no such extension.
        try:
            extensions = client.server_metadata().extensions
        except ClientError:
            raise error from None
        if "statistics" in extensions:
            raise
        msg = f"{client.url} has no statistics, an extension of Triton's: {error.message}"
        raise Unsupported(msg) from error


_STATS_HEAD = (
    "model", "version", "requests", "failed", "req/s", "batch",
    "ms", "queue", "input", "compute", "output", "cached",
)  # fmt: skip


def stats_board(
    rows: Sequence["ModelStatistics"],
    before: Mapping[tuple[str, str], "ModelStatistics"],
    seconds: float,
) -> Board:
    """Return statistics as a table: averages since `before`, and a rate if that was a while ago."""
    table = [_stats_row(row, before.get((row.name, row.version)), seconds) for row in rows]
    since = f"in the last {seconds:.1f} s" if seconds else "since the models were loaded"
    return Board([(f"requests {since}; times are in ms", _STATS_HEAD, table)], [])


def _stats_row(
    row: "ModelStatistics", before: "ModelStatistics | None", seconds: float
) -> tuple[str, ...]:
    now = row.inference_stats
    old = before.inference_stats if before else None

    def since(name: str) -> tuple[int, int]:
        one: Duration = getattr(now, name)
        was: Duration | None = getattr(old, name) if old else None
        return one.count - (was.count if was else 0), one.ns - (was.ns if was else 0)

    def mean(name: str) -> str:
        count, ns = since(name)
        return f"{ns / count / 1e6:.3g}" if count else "-"

    count, failed = since("success")[0], since("fail")[0]
    inferences = row.inference_count - (before.inference_count if before else 0)
    executions = row.execution_count - (before.execution_count if before else 0)
    hits = since("cache_hit")[0]
    return (
        row.name,
        row.version,
        str(count),
        str(failed) if failed else "-",
        f"{count / seconds:.0f}" if seconds else "-",
        f"{inferences / executions:.3g}" if executions else "-",
        mean("success"),
        mean("queue"),
        mean("compute_input"),
        mean("compute_infer"),
        mean("compute_output"),
        f"{hits / count:.0%}" if hits and count else "-",
    )


def _shown(given: argparse.Namespace, look: Callable[[], tuple[Board, object]]) -> int:
    """Show what `look` returns, or write it as JSON; with --watch again and again."""
    # A screen would break lines of JSON where the terminal ends, and draw over them.
    with nullcontext(_no_show) if given.json else screen() as show:
        while True:
            board, document = look()
            if given.json:
                _write_json(document)
            else:
                show(board)
            if not given.watch:
                return 0
            time.sleep(WATCH_S)


def _no_show(_board: Board) -> None:
    """Show nothing: JSON is written as it is."""


def _write_json(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    # Names of arguments may be no UTF-8; what stands for that in Python, JSON can escape.
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
    sys.stdout.flush()


_VERBS: Mapping[str, Callable[["Client", argparse.Namespace], int]] = {
    "models": _models,
    "load": _load,
    "unload": _unload,
    "stats": _stats,
}
