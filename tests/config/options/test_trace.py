from dataclasses import replace
from pathlib import Path

import pytest

from inferd.config.options.trace import (
    CollectorSettings,
    TraceSettings,
    in_effect,
    read_trace_config,
    whole_number,
)
from inferd.errors import InvalidConfig


def test_nothing_said_is_off_with_tritons_defaults():
    settings = TraceSettings(
        levels=(), rate=1000, count=-1, log_frequency=0, file=None, mode="triton"
    )
    assert read_trace_config([]) == (settings, CollectorSettings())


def test_all_of_mode_triton():
    entries = ["rate=100", "level=TENSORS", "level=TIMESTAMPS", "count=5", "mode=triton"]
    entries += ["triton,file=/tmp/trace.json", "triton,log-frequency=50"]
    assert read_trace_config(entries)[0] == TraceSettings(
        levels=("TIMESTAMPS", "TENSORS"),
        rate=100,
        count=5,
        log_frequency=50,
        file=Path("/tmp/trace.json"),
    )


def test_all_of_mode_opentelemetry():
    entries = ["mode=opentelemetry", "level=TIMESTAMPS", "rate=0"]
    entries += ["opentelemetry,url=http://there:4318/v1/traces?a=b"]
    entries += ["opentelemetry,resource=service.name=mine", "opentelemetry,resource=a=b=c"]
    entries += ["opentelemetry,bsp_max_queue_size=10", "opentelemetry,bsp_schedule_delay=20"]
    entries += ["opentelemetry,bsp_max_export_batch_size=10"]
    settings, collector = read_trace_config(entries)
    assert settings == TraceSettings(levels=("TIMESTAMPS",), rate=0, mode="opentelemetry")
    assert collector == CollectorSettings(
        url="http://there:4318/v1/traces?a=b",
        resource=(("service.name", "mine"), ("a", "b=c")),
        bsp_max_queue_size=10,
        bsp_schedule_delay=20,
        bsp_max_export_batch_size=10,
    )


def test_a_url_without_a_scheme_is_http():
    collector = read_trace_config(["opentelemetry,url=there:4318/v1/traces"])[1]
    assert collector.url == "http://there:4318/v1/traces"


USUAL = CollectorSettings(
    url="http://localhost:4318/v1/traces",
    bsp_max_queue_size=2048,
    bsp_schedule_delay=5000,
    bsp_max_export_batch_size=512,
)
THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:1"}


@pytest.mark.parametrize(
    ("environment", "reported"),
    [
        ({}, USUAL),
        (THERE, replace(USUAL, url="http://there:1/v1/traces")),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:1/"},
            replace(USUAL, url="http://there:1/v1/traces"),
        ),
        (
            {**THERE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other:2/x"},
            replace(USUAL, url="http://other:2/x"),
        ),
        (
            {
                "OTEL_BSP_MAX_QUEUE_SIZE": "20",
                "OTEL_BSP_SCHEDULE_DELAY": "x",
                "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10",
            },
            replace(USUAL, bsp_max_queue_size=20, bsp_max_export_batch_size=10),
        ),
    ],
)
def test_the_variables_of_opentelemetry_are_reported(environment, reported):
    assert in_effect(CollectorSettings(), environment) == reported


def test_options_go_before_the_variables():
    given = CollectorSettings(
        url="http://here/v1/traces",
        resource=(("a", "b"),),
        bsp_max_queue_size=3,
        bsp_schedule_delay=2,
        bsp_max_export_batch_size=1,
    )
    assert in_effect(given, {**THERE, "OTEL_BSP_MAX_QUEUE_SIZE": "20"}) == given


def test_the_last_of_two_counts():
    assert read_trace_config(["rate=1", "rate=2"])[0].rate == 2


@pytest.mark.parametrize("level", ["MIN", "MAX", "max", "true", "On", "timestamps"])
def test_levels_of_tritons_command_lines_are_timestamps(level):
    settings = read_trace_config([f"level={level}", "triton,file=x"])[0]
    assert settings.levels == ("TIMESTAMPS",)


def test_a_level_may_stand_without_a_file():
    settings = read_trace_config(["level=TENSORS"])[0]
    assert (settings.levels, settings.file) == (("TENSORS",), None)


@pytest.mark.parametrize("level", ["OFF", "off", "false"])
def test_off_is_no_level(level):
    assert read_trace_config([f"level={level}"])[0].levels == ()


def test_a_mode_may_have_any_case():
    assert read_trace_config(["mode=OpenTelemetry"])[0].mode == "opentelemetry"


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (["rate"], r"--trace-config rate: expected one of level=, rate="),
        (["rat=1"], r"--trace-config rat=1: expected one of"),
        (["triton,rate=1"], r"--trace-config triton,rate=1: expected one of"),
        (["file=x"], r"--trace-config file=x: expected one of"),
        (["rate=x"], r"--trace-config rate=x: expected a whole number from 0 to 4294967295"),
        (["rate=-1"], r"rate=-1: expected"),
        (["rate="], r"rate=: expected"),
        (["rate=4294967296"], r"rate=4294967296: expected"),
        (["rate=" + "9" * 5000], r"expected a whole number"),
        (["count=-2"], r"count=-2: expected a whole number from -1"),
        (["level=times"], r"level=times: expected OFF, TIMESTAMPS or TENSORS"),
        (["level=OFF", "level=TENSORS"], r"level=OFF goes with no other level"),
        (["mode=x"], r"mode=x: expected triton or opentelemetry"),
        (
            ["mode=opentelemetry", "level=TENSORS"],
            r"level=TENSORS: expected TIMESTAMPS: mode=opentelemetry has no tensors",
        ),
        (["opentelemetry,resource=x"], r"resource=x: expected KEY=VALUE"),
        (["opentelemetry,resource==x"], r"resource==x: expected KEY=VALUE"),
        (["opentelemetry,bsp_schedule_delay=0"], r"bsp_schedule_delay=0: expected"),
        (
            ["opentelemetry,bsp_max_queue_size=5", "opentelemetry,bsp_max_export_batch_size=6"],
            r"bsp_max_export_batch_size=6: expected at most max_queue_size, 5",
        ),
    ],
)
def test_what_is_wrong_is_named(entries, text):
    with pytest.raises(InvalidConfig, match=text):
        read_trace_config(entries)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-1", -1), ("007", 7), ("4294967295", 4294967295)],
)
def test_whole_numbers_are_decimal_digits(text, number):
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["", "-", "+1", "1.0", "٣", "1_0", " 1", "--1", "9" * 20])
def test_anything_else_is_no_whole_number(text):
    assert whole_number(text) is None
