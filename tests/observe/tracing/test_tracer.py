import asyncio
from pathlib import Path

import pytest
from changed import change

from inferd.config.options.trace import TraceChange, TraceSettings
from inferd.errors import InvalidRequest, Unsupported
from inferd.observe.allowed import AllowedFolder
from inferd.observe.tracing.trace import Parent
from inferd.observe.tracing.tracer import Tracer

FILE = Path("/var/traces/trace.json")
FOLDER = Path("/allowed")
ON = ("TIMESTAMPS",)


class Recorder:
    """A sink that keeps what it gets."""

    def __init__(self):
        self.traces = []
        self.calls = []

    def open(self):
        self.calls.append("open")

    def take(self, trace):
        self.traces.append(trace)

    def close(self, timeout_s):
        self.calls.append(("close", timeout_s))


def tracer_of(folder=FOLDER, **settings):
    settings = {"levels": ON, "rate": 1, "file": FILE} | settings
    return Tracer(TraceSettings(**settings), Recorder(), AllowedFolder(folder, "--trace-directory"))


def ids(tracer, count, model="m", parent=None):
    """Begin `count` requests; return which of them, from 1, are traced."""
    return [i for i in range(1, count + 1) if tracer.begin(model, parent)]


# --- which requests ---


@pytest.mark.parametrize(
    ("rate", "traced"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4]), (5, [5]), (0, []), (1000, [])]
)
def test_the_last_of_each_rate_requests_is_traced(rate, traced):
    assert ids(tracer_of(rate=rate), 5) == traced


def test_after_count_traces_nothing_is_traced_and_no_clock_is_read():
    tracer = tracer_of(count=2, rate=2)
    assert tracer.is_on
    assert ids(tracer, 10) == [2, 4]
    assert not tracer.is_on
    assert tracer.settings().count == 0


def test_a_count_of_nothing_is_off():
    assert not tracer_of(count=0).is_on


def test_traces_are_numbered_over_all_models():
    tracer = tracer_of()
    found = [tracer.begin(model) for model in ("a", "b", "a")]
    assert [(trace.id, trace.model) for trace in found] == [(1, "a"), (2, "b"), (3, "a")]


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({}, True),
        ({"levels": ()}, False),
        ({"rate": 0}, False),
        ({"rate": 0, "mode": "opentelemetry"}, True),
        ({"count": 0, "mode": "opentelemetry"}, True),
        ({"levels": (), "mode": "opentelemetry"}, False),
    ],
)
def test_it_is_on_when_some_request_may_be_traced(settings, is_on):
    assert tracer_of(**settings).is_on is is_on


SAMPLED, UNSAMPLED = Parent(1, 2, True), Parent(1, 2, False)


def test_what_its_client_records_is_traced_whatever_rate_and_count_are():
    tracer = tracer_of(mode="opentelemetry", rate=2, count=1)
    assert ids(tracer, 2, parent=SAMPLED) == [1, 2]
    assert tracer.settings().count == 1
    assert ids(tracer, 4, parent=UNSAMPLED) == [2]
    assert tracer.is_on
    assert tracer.begin("m", SAMPLED).parent == SAMPLED


def test_finished_traces_go_to_the_sink():
    sink = Recorder()
    tracer = Tracer(TraceSettings(levels=ON, rate=1, file=FILE), sink)
    trace = tracer.begin("m")
    tracer.finish(trace)
    assert sink.traces == [trace]


# --- settings ---


def test_a_model_may_have_settings_of_its_own_and_fields_of_all():
    tracer = tracer_of(rate=7)
    change(tracer, TraceChange(rate=1), "m")
    assert tracer.settings("m").rate == 1
    assert (
        tracer.settings("other") == tracer.settings() == TraceSettings(levels=ON, rate=7, file=FILE)
    )
    change(tracer, TraceChange(count=5))
    assert (tracer.settings("m").rate, tracer.settings("m").count) == (1, 5)
    assert ids(tracer, 3) == [1, 2, 3]
    assert ids(tracer, 3, model="other") == []


def test_what_is_cleared_falls_back_to_global_and_then_to_the_start():
    tracer = tracer_of(rate=7)
    change(tracer, TraceChange(rate=8))
    change(tracer, TraceChange(rate=9), "m")
    change(tracer, TraceChange(cleared=frozenset({"rate"})), "m")
    assert tracer.settings("m").rate == 8
    change(tracer, TraceChange(cleared=frozenset({"rate"})))
    assert tracer.settings("m").rate == tracer.settings().rate == 7


def test_off_for_one_model_leaves_the_others_on():
    tracer = tracer_of()
    change(tracer, TraceChange(levels=("OFF",)), "m")
    assert ids(tracer, 1) == []
    assert ids(tracer, 1, model="other") == [1]
    assert tracer.is_on


def test_on_for_one_model_leaves_the_others_off():
    tracer = tracer_of(levels=())
    assert not tracer.is_on
    change(tracer, TraceChange(levels=("TENSORS",)), "m")
    assert tracer.is_on
    assert ids(tracer, 1) == [1]
    assert ids(tracer, 1, model="other") == []


def test_a_rate_begins_anew_when_it_is_changed():
    tracer = tracer_of(rate=3)
    change(tracer, TraceChange(rate=2), "a")
    assert ids(tracer, 1, model="a") == []
    change(tracer, TraceChange(count=9), "a")
    assert ids(tracer, 1, model="a") == [1]  # its second one
    assert ids(tracer, 1, model="a") == []
    change(tracer, TraceChange(rate=2), "a")
    assert ids(tracer, 2, model="a") == [2]


def test_a_count_that_is_used_up_stays_so_until_another_is_given():
    tracer = tracer_of(count=1)
    change(tracer, TraceChange(count=2), "m")
    assert ids(tracer, 3) == [1, 2]
    change(tracer, TraceChange(levels=("TENSORS",)), "m")
    change(tracer, TraceChange(rate=1))
    assert tracer.settings("m").count == 0
    change(tracer, TraceChange(count=5))
    assert ids(tracer, 1) == []
    change(tracer, TraceChange(count=1), "m")
    assert ids(tracer, 2) == [1]


def test_a_count_of_all_models_is_what_is_left_of_it_for_one_with_settings_of_its_own():
    tracer = tracer_of(count=3)
    assert ids(tracer, 2, model="other") == [1, 2]
    change(tracer, TraceChange(rate=1), "m")
    assert tracer.settings("m").count == 1
    change(tracer, TraceChange(count=7), "m")
    change(tracer, TraceChange(cleared=frozenset({"count"})), "m")
    assert tracer.settings("m").count == 1


def test_unknown_levels_are_passed_over():
    tracer = tracer_of()
    change(tracer, TraceChange(levels=("NOISE",)))
    assert tracer.settings().levels == ON
    change(tracer, TraceChange(levels=("NOISE", "TENSORS")))
    assert tracer.settings().levels == ("TENSORS",)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (
            TraceChange(rate=2, levels=("OFF", "TENSORS")),
            InvalidRequest,
            "Expect only one trace level 'OFF' is specified",
        ),
        (TraceChange(rate=2, file="/etc/passwd"), InvalidRequest, "trace_file must be a file name"),
        (TraceChange(rate=2, mode="opentelemetry"), Unsupported, "trace_mode cannot be changed"),
    ],
)
def test_a_wrong_change_changes_nothing(wrong, error, text):
    tracer = tracer_of()
    with pytest.raises(error, match=text):
        change(tracer, wrong)
    assert tracer.settings().rate == 1


def test_a_file_lies_in_the_allowed_folder_and_known_names_mean_what_they_did():
    tracer = tracer_of()
    change(tracer, TraceChange(file="x.json"), "m")
    assert tracer.settings("m").file == FOLDER / "x.json"
    change(tracer, TraceChange(file="y.json"))
    change(tracer, TraceChange(file="y.json"), "m")
    assert tracer.settings("m").file == FOLDER / "y.json"
    change(tracer, TraceChange(file="trace.json"), "m")
    assert tracer.settings("m").file == FILE


def test_without_an_allowed_folder_the_file_stays_where_it_is():
    tracer = tracer_of(folder=None)
    change(tracer, TraceChange(file="trace.json", mode="triton", rate=9))
    assert tracer.settings().rate == 9
    with pytest.raises(Unsupported, match="trace file location can not be updated"):
        change(tracer, TraceChange(file="x"))


def test_a_start_without_a_file_is_reported(caplog):
    tracer = tracer_of(levels=ON, file=None, rate=1)
    assert "trace_level is TIMESTAMPS, but there is no trace file: nothing is" in caplog.text
    assert tracer.begin("m") is None
    caplog.clear()
    tracer_of(levels=ON, file=None, mode="opentelemetry")
    assert caplog.text == ""


def test_without_a_file_nothing_is_traced_and_nothing_counted(caplog):
    tracer = tracer_of(levels=(), file=None, rate=1, count=2)
    change(tracer, TraceChange(levels=ON))
    assert "no trace file: nothing is traced" in caplog.text
    assert (tracer.is_on, tracer.settings().levels) == (False, ON)
    assert tracer.begin("m") is None
    change(tracer, TraceChange(file="x"), "m")
    assert tracer.is_on
    assert (tracer.begin("other"), tracer.begin("m") is not None) == (None, True)
    change(tracer, TraceChange(cleared=frozenset({"file"})), "m")
    assert (tracer.is_on, tracer.begin("m")) == (False, None)
    assert tracer.settings().count == 2


def test_tensors_are_not_for_spans():
    spans = tracer_of(levels=(), file=None, mode="opentelemetry")
    change(spans, TraceChange(levels=ON))
    assert spans.is_on
    with pytest.raises(InvalidRequest, match="trace_level TENSORS is not for trace_mode"):
        change(spans, TraceChange(levels=("TENSORS",)))


def test_nothing_is_traced_after_closing():
    sink = Recorder()
    tracer = Tracer(TraceSettings(levels=ON, rate=1, file=FILE), sink)
    tracer.open()
    asyncio.run(tracer.close(3.0))
    assert sink.calls == ["open", ("close", 3.0)]
    assert not tracer.is_on
