"""What inferd route counts: by place, and never falling."""

from prometheus_client.parser import text_string_to_metric_families

from inferd.route.arrangement import Arranger, KnownPlace, ModelKind
from inferd.route.metrics import RouteCounts, families
from inferd.route.place import Place


def arranged(*names):
    known = [KnownPlace(Place(name, "h", 1, 2), "10.0.0.1", {}) for name in names]
    return Arranger(2, 1).arrange(known)


def row(backend, slot, requests, status="UP", busy=0):
    counts = {"stot": requests, "eresp": 1, "econ": 2, "wretr": 3, "scur": busy}
    numbers = {key: str(value) for key, value in counts.items()}
    return {"pxname": backend, "svname": slot, "status": status} | numbers


def values(counts, rows):
    """Return the samples by name and labels."""
    text = "".join(one.text() for one in families(counts, rows))
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


REQUESTS = "inferd_route_requests_total"
A, REST, GRPC = ("place", "a"), ("protocol", "rest"), ("protocol", "grpc")


def test_requests_are_counted_by_place_and_protocol():
    counts = RouteCounts(arrangement=arranged("a", "b"))
    rows = [
        row("rest-all", "p1", 5, busy=1),
        row("rest-1", "p1", 2, busy=1),
        row("grpc-all", "p1", 7),
        row("rest-all", "p2", 1, "DOWN"),
        row("checks-all", "p1", 0),
        row("checks-all", "p2", 0, "DOWN"),
        row("rest-all", "p1-unchecked", 2, busy=1),
        row("rest-all", "BACKEND", 8),
        row("rest-all", "p3", 9),
    ]
    found = values(counts, rows)
    assert found[REQUESTS, A, REST] == 9
    assert found[REQUESTS, A, GRPC] == 7
    assert found["inferd_route_retries_total", A, REST] == 12
    assert found["inferd_route_place_up", A] == 1
    assert found["inferd_route_place_up", ("place", "b")] == 0
    assert found["inferd_route_under_way", A] == 3


def test_no_count_falls_when_haproxy_is_started_again():
    counts = RouteCounts(arrangement=arranged("a"))
    assert values(counts, [row("rest-all", "p1", 5)])[REQUESTS, A, REST] == 5
    assert values(counts, [row("rest-all", "p1", 8)])[REQUESTS, A, REST] == 8
    assert values(counts, [row("rest-all", "p1", 1)])[REQUESTS, A, REST] == 9
    assert values(counts, None)[REQUESTS, A, REST] == 9


def test_models_of_mixed_versions_are_counted():
    known = [
        KnownPlace(Place(name, "h", 1, 2), "10.0.0.1", {"m": ModelKind.ONCE}, {"m": {version}})
        for name, version in (("a", "1"), ("b", "2"))
    ]
    found = values(RouteCounts(arrangement=Arranger(2, 2).arrange(known)), None)
    assert found[("inferd_route_mixed_models",)] == 1


def test_without_haproxy_it_says_so():
    found = values(RouteCounts(restart_count=3, is_source_failing=True), None)
    assert found[("inferd_route_haproxy_up",)] == 0
    assert found[("inferd_route_haproxy_restarts_total",)] == 3
    assert found[("inferd_route_source_failing",)] == 1
