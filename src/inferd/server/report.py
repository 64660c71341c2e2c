"""The report of the server's models when it has started."""

import logging
from collections.abc import Iterator, Sequence

from inferd.config.server import ServerConfig
from inferd.core.metadata import IndexEntry, ModelState
from inferd.observe.log import printable
from inferd.repository.fetch.url import shown
from inferd.server.places import dashboard_url
from inferd.server.server import Server

log = logging.getLogger("inferd")

_HEADER = ("Model", "Version", "State", "Reason")
_NONE_REQUESTED = "no models asked for: clients load them, or --load-model at the start"


def loaded_report(server: Server, config: ServerConfig) -> tuple[list[str], str]:
    """Return the lines for the terminal, and why the server is not ready, or will not be.

    With a log of JSON the lines go there instead: the table is for people.
    """
    engine = server.engine
    index = engine.catalog.index()
    report: list[str] = []
    if config.log_format == "json":
        for entry in index:
            log.info("model %s", entry.name, extra={"fields": model_fields(entry)})
    else:
        is_on_demand = config.model_control_mode == "explicit" and not config.load_model
        report = model_table(index, is_on_demand=is_on_demand)
        report += [f"{protocol}  {where}" for protocol, where in server.places()]
        if url := dashboard_url(config, server.places()):
            report.append(f"Dashboard  {url}")
    if engine.readiness.would_be_ready():
        return report, ""
    if engine.readiness.needs_models():
        return report, why_empty(config, index)
    return report, "not ready: models failed; --strict-readiness=false accepts that"


def failures(index: Sequence[IndexEntry]) -> list[str]:
    """Return the model versions that are not ready, each as "name version"."""
    return [
        f"{entry.name} {entry.version}".rstrip()
        for entry in index
        if entry.state is not ModelState.READY
    ]


def model_table(index: Sequence[IndexEntry], *, is_on_demand: bool = False) -> list[str]:
    """Return the lines of a table of all model versions; a reason may take several lines.

    `is_on_demand`: none are loaded until clients ask for them.
    """
    if not index:
        return [_NONE_REQUESTED if is_on_demand else "no models found"]
    rows = [_HEADER, *(row for entry in index for row in _rows(entry))]
    # The last column ends the line and needs no width.
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
        ).rstrip()
        for row in rows
    ]


def why_empty(config: ServerConfig, index: Sequence[IndexEntry]) -> str:
    """Return why a server without models is not ready, and what can be done.

    What is in the `index` could not be read.
    """
    places = (
        ", ".join(printable(shown(path)) for path in config.model_repository) or "no repository"
    )
    is_polling = config.model_control_mode == "poll" and config.repository_poll_secs > 0
    until = " until a model appears" if is_polling else ""
    what = "could be read" if index else "was found"
    return f"not ready{until}: no model {what} in {places}; --allow-empty accepts that"


def model_fields(entry: IndexEntry) -> dict[str, str]:
    """Return the fields of a JSON log line about one model version."""
    return {
        "model": entry.name,
        "version": entry.version,
        "state": _state(entry),
        "reason": entry.reason,
    }


def _rows(entry: IndexEntry) -> Iterator[tuple[str, str, str, str]]:
    first, *rest = entry.reason.splitlines() or [""]
    yield printable(entry.name), entry.version or "-", _state(entry), printable(first)
    for line in rest:
        yield "", "", "", printable(line)


def _state(entry: IndexEntry) -> str:
    return entry.state.value if entry.state else "NOT LOADED"
