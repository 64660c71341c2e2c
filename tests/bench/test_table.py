"""Results as text."""

from bench_results import UNKNOWN, latencies, point, run

from inferd.bench.figures import Estimate
from inferd.bench.table import HEAD, duration_text, estimate_text, remarks, rows, title


def test_a_row_has_rate_percentiles_phases_and_cpu():
    [row] = rows([point()])
    assert len(row) == len(HEAD) and row[:2] == ("4", "800")
    assert row[2].startswith("1.99") and row[5:] == ("0.04", "1.92", "0.12", "-")


def test_a_latency_that_is_not_the_servers_is_not_given():
    [row] = rows([point(verdict=UNKNOWN)])
    assert row[1] == "≥ 800" and row[2:5] == ("?", "?", "?")
    said = list(remarks(run(point(verdict=UNKNOWN))))
    assert "4: no latency of the server: the load generator is at its limit" in said


def test_errors_are_a_share_and_their_texts_are_said():
    one = point(errors={"400: bad": 1000})
    assert rows([one])[0][-1] == "1000 (20.0%)"
    assert "4: 1000 times: 400: bad" in list(remarks(run(one)))


def test_what_is_unknown_is_a_dash():
    [row] = rows([point(server=None, cpu_us=None)])
    assert row[5:8] == ("-", "-", "-")
    said = list(remarks(run(point(server=None, cpu_us=None))))
    assert len(said) == 1 and said[0].startswith("times are in ms")


def test_an_uncertain_value_says_how_far_off_it_may_be():
    assert estimate_text(Estimate(2350, 2300, 2450)) == "2.35 ±4%"
    assert estimate_text(Estimate(2350, 2349, 2351)) == "2.35"
    assert (duration_text(1234), duration_text(0.1), duration_text(1)) == ("1.23", "0", "0.001")


def test_streams_and_interruptions_are_said():
    said = list(remarks(run(point(first=latencies(300), answers_per_request=7.5), is_whole=False)))
    assert any("first answer after 0.299" in one and "7.5 answers" in one for one in said)
    assert said[-1] == "interrupted: what was measured until then"


def test_the_title_says_what_was_measured():
    said = title(run(point(), version="3"))
    assert said == "m<1> version 3 at http://h:8000, REST binary: x FP32 [1,3]; load from 1 process"
