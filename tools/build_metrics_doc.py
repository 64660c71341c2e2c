"""Writes docs/reference/metrics.md from what the server writes at /metrics; --check only compares.

Each source of metrics is asked for what it has to tell when everything is switched on, so that a
row says what a scrape says.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from inferd.cache.local import LocalStore
from inferd.cache.redis import RedisStore
from inferd.config.options.cache import RedisCacheSettings
from inferd.config.options.log import PayloadSettings
from inferd.config.options.metrics import MetricsSettings
from inferd.core.processes import Processes
from inferd.engine.whole import capacity_families, processes_families
from inferd.memory.capacity import Capacity
from inferd.observe.crash.history import History, crash_families
from inferd.observe.devices import METRICS, Cpu, process_families
from inferd.observe.family import Family
from inferd.observe.payloads.files import EventFile
from inferd.observe.payloads.log import PayloadLog
from inferd.observe.prometheus import FIRST_RESPONSE_BUCKETS_MS, Observed, exposition
from inferd.observe.stats import Histogram
from inferd.observe.summary import SummaryCounts
from inferd.route.arrangement import Arranger, KnownPlace
from inferd.route.metrics import RouteCounts
from inferd.route.metrics import families as route_families
from inferd.route.place import Place

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"

_TOP = """\
<!-- Written by tools/build_metrics_doc.py from what the server writes. Do not edit. -->

# Metrics

What Prometheus finds at `/metrics`. [The guide](../guide/metrics.md#metrics) says how to switch
groups of them on and off, and what a server of several processes reports. Names that begin with
`nv_` are Triton's, with its labels and types. A model's `metric_tags` are further labels of its
metrics, with an underscore before their names; models in Python may add
[metrics of their own](../guide/python-models.md).
"""
_HEAD = "| metric | type | labels | |\n| --- | --- | --- | --- |"
_LINE = re.compile(r"# (HELP|TYPE) (\S+) (.*)|([a-zA-Z_:][^{ ]*)(?:\{(.*)\})? \S+")
_LABEL = re.compile(r'(\w+)="')
_PARTS = re.compile(r"_(?:bucket|sum|count)$")
"""What a histogram's or summary's lines have behind its name."""


def build() -> str:
    """Return the page."""
    parts = [_TOP]
    for title, text in _sections():
        rows = "\n".join(_rows(text))
        parts.append(f"## {title}\n\n{_HEAD}\n{rows}\n")
    return "\n".join(parts)


def _rows(text: str) -> Iterator[str]:
    """Yield a row for each metric of a scrape."""
    helps: dict[str, str] = {}
    kinds: dict[str, str] = {}
    labels: dict[str, list[str]] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            sys.exit(f"this is no line of Prometheus's format: {line}")
        what, name, rest, sample, where = found.groups()
        if what:
            (helps if what == "HELP" else kinds)[name] = rest
            continue
        metric = sample if sample in kinds else _PARTS.sub("", sample)
        known = labels.setdefault(metric, [])
        known += [one for one in _LABEL.findall(where or "") if one not in known]
    for name, kind in kinds.items():
        told = ", ".join(labels.get(name, ()))
        yield f"| `{name}` | {kind} | {told} | {helps[name]} |".replace("|  |", "| |")


def _text(*families: Iterable[Family]) -> str:
    return "".join(one.text() for some in families for one in some)


def _sections() -> Iterator[tuple[str, str]]:
    everything = MetricsSettings(True, True, True, True)
    counts = SummaryCounts()
    counts.first_responses = Histogram(FIRST_RESPONSE_BUCKETS_MS)
    # Of a model whose answers are cached Triton has no summary of whole requests.
    seen = [
        Observed(name, "1", counts, 0, 0.0, {}, False, is_cached, True, True)
        for name, is_cached in (("a", False), ("b", True))
    ]
    yield "Models", "".join(exposition(seen, everything))
    own = capacity_families(Capacity()), processes_families(Processes()), crash_families(History())
    yield "The server", _text(*own)
    local = _text(LocalStore(1 << 20).families())
    redis = RedisStore(RedisCacheSettings("127.0.0.1", 6379)).families()
    yield "The response cache", local + _text([one for one in redis if one.name not in local])
    log = PayloadLog(PayloadSettings(), EventFile(Path(), 0, 0))
    yield "The payload log", _text(log.families())
    gpus = [Family(name, kind, help, [('gpu_uuid="x"', 0)]) for name, kind, help, _ in METRICS]
    yield "The machine and the process", _text(Cpu().families(), gpus, process_families())
    place = KnownPlace(Place("a", "h", 1, 2), "10.0.0.1", {})
    route = RouteCounts(arrangement=Arranger(1, 1).arrange([place]))
    row = dict.fromkeys(("stot", "eresp", "econ", "wretr", "scur"), "1")
    backends = ("checks-all", "rest-all")
    rows = [{**row, "pxname": name, "svname": "p1", "status": "UP"} for name in backends]
    yield "inferd route", _text(route_families(route, rows))


def main() -> int:
    """Write the page; with --check, only return 1 if it is out of date."""
    page = build()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    sys.stderr.write("docs/reference/metrics.md is not up to date: run make docs\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
