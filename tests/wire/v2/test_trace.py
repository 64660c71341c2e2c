import json
from dataclasses import replace
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.config.options.trace import CollectorSettings, TraceChange, TraceSettings
from inferd.errors import InvalidRequest
from inferd.wire.v2.settings import (
    decode_trace_message,
    decode_trace_request,
    encode_trace_message,
    encode_trace_settings,
)

ALL = TraceSettings(
    levels=("TIMESTAMPS", "TENSORS"),
    rate=5,
    count=7,
    log_frequency=9,
    file=Path("/var/t.json"),
    mode="opentelemetry",
)
AS_JSON = {
    "trace_level": ["TIMESTAMPS", "TENSORS"],
    "trace_rate": "5",
    "trace_count": "7",
    "log_frequency": "9",
    "trace_file": "t.json",
    "trace_mode": "opentelemetry",
}
CHANGE = TraceChange(
    levels=("TIMESTAMPS", "TENSORS"),
    rate=5,
    count=7,
    log_frequency=9,
    file="t.json",
    mode="opentelemetry",
)


def decoded(**values):
    return decode_trace_request(memoryview(json.dumps(values).encode()))


def decoded_message(model="", **values):
    request = pb.TraceSettingRequest(model_name=model)
    for name, texts in values.items():
        request.settings[name].value.extend(texts)
    return decode_trace_message(request.SerializeToString())


def test_all_settings_are_reported_in_tritons_order_without_the_files_path():
    assert list(json.loads(encode_trace_settings(ALL)).items()) == list(AS_JSON.items())


def test_where_spans_go_is_reported_as_it_was_set_and_without_credentials():
    url = "https://user:secret@collector:4318/v1/traces?key=secret"
    collector = CollectorSettings(url=url, bsp_schedule_delay=200, resource=(("a", "b"),))
    settings = TraceSettings(mode="opentelemetry", collector=collector)
    added = {"url": "https://collector:4318/v1/traces", "bsp_schedule_delay": "200"}
    plain = json.loads(encode_trace_settings(TraceSettings(mode="opentelemetry")))
    assert json.loads(encode_trace_settings(settings)) == plain | added
    message = pb.TraceSettingResponse.FromString(encode_trace_message(settings))
    reported = {name: list(value.value) for name, value in message.settings.items()}
    assert {name: reported[name] for name in added} == {
        name: [text] for name, text in added.items()
    }
    nothing = replace(settings, collector=CollectorSettings())
    assert json.loads(encode_trace_settings(nothing)) == plain


def test_no_level_is_off_and_no_file_is_empty():
    reported = json.loads(encode_trace_settings(TraceSettings()))
    assert (reported["trace_level"], reported["trace_file"]) == (["OFF"], "")


def test_a_message_tells_the_same():
    message = pb.TraceSettingResponse.FromString(encode_trace_message(ALL))
    reported = {name: list(value.value) for name, value in message.settings.items()}
    assert reported == {k: v if isinstance(v, list) else [v] for k, v in AS_JSON.items()}


def test_settings_in_an_answer_are_a_request_for_the_same():
    assert decoded(**AS_JSON) == CHANGE
    message = decode_trace_message(encode_trace_message(ALL))
    assert message == ("", CHANGE)


def test_unknown_names_change_nothing():
    assert decoded(trace_x=1) == TraceChange()
    assert decoded_message(trace_x=["1", "2"])[1] == TraceChange()


def test_null_or_no_value_clears():
    cleared = TraceChange(cleared=frozenset({"rate", "levels"}))
    assert decoded(trace_rate=None, trace_level=None) == cleared
    assert decoded(trace_rate=None, trace_level=[]) == cleared
    request = pb.TraceSettingRequest()
    request.settings["trace_rate"].SetInParent()
    request.settings["trace_level"].SetInParent()
    assert decode_trace_message(request.SerializeToString())[1] == cleared


def test_a_message_may_be_about_one_model():
    assert decoded_message("m", trace_rate=["1"]) == ("m", TraceChange(rate=1))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("trace_rate", 5, "trace_rate is 5, expected a string, for numbers too, or null"),
        ("trace_rate", "x", 'trace_rate is "x", expected a whole number from 0 to 4294967295'),
        ("trace_rate", "-1", 'trace_rate is "-1", expected'),
        ("trace_rate", "4294967296", "expected a whole number"),
        ("trace_rate", "9" * 1000, "expected a whole number"),
        ("trace_count", "-2", 'trace_count is "-2", expected a whole number from -1'),
        ("trace_count", ["1"], r'trace_count is \["1"\], expected a string'),
        ("log_frequency", "", 'log_frequency is "", expected a whole number'),
        ("trace_level", "OFF", 'trace_level is "OFF", expected an array of strings, or null'),
        ("trace_level", [1], r"trace_level is \[1\], expected an array of strings"),
        ("trace_file", 1, "trace_file is 1, expected a string"),
        ("trace_mode", True, "trace_mode is true, expected a string"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name, value, text):
    with pytest.raises(InvalidRequest, match=text):
        decoded(**{name: value})


def test_more_than_one_value_is_refused_in_a_message_where_one_is_meant():
    with pytest.raises(InvalidRequest, match="expect only 1 value for 'trace_rate', got 2"):
        decoded_message(trace_rate=["1", "2"])


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_what_is_no_object_is_refused(body):
    with pytest.raises(InvalidRequest):
        decode_trace_request(memoryview(body))
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_trace_message(b"\xff")
