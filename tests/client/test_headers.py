"""The headers of calls."""

import sys
import types

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import InvalidTarget
from inferd.client.headers import HeaderLines
from inferd.client.settings import read_settings

GOOD = answer(200, b'{"model_name":"m","outputs":[]}')


def lines(own=None, /, **options):
    return HeaderLines(read_settings("http://h", options)).lines(own).split("\r\n")


def test_those_of_the_options_and_of_the_call():
    assert "Authorization: Bearer k" in lines(api_key="k")
    assert {"A: 1", "B: 2"} <= set(lines({"B": "2"}, headers={"A": "1"}))
    numbers = iter("12")
    of_each = HeaderLines(read_settings("http://h", {"headers": lambda: {"N": next(numbers)}}))
    found = [of_each.lines(None) for _ in range(2)]
    assert ["N: 1\r\n" in found[0], "N: 2\r\n" in found[1]] == [True, True]


def test_those_of_the_call_replace_others_whatever_their_case():
    found = lines({"AUTHORIZATION": "b"}, api_key="k", headers={"user-agent": "mine", "x": "1"})
    assert found == ["user-agent: mine", "AUTHORIZATION: b", "x: 1", ""]
    of_each = HeaderLines(read_settings("http://h", {"headers": lambda: {"X": "1", "y": "2"}}))
    assert of_each.lines({"x": "3"}) == "User-Agent: inferd-client\r\nx: 3\r\ny: 2\r\n"


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Host", "TE"])
def test_the_framing_is_the_clients_own(name):
    with pytest.raises(InvalidTarget, match=f"header '{name}' is the client's own"):
        lines({name: "1"})


def test_values_are_texts():
    with pytest.raises(InvalidTarget, match="header 'a' is no pair of texts"):
        lines({"a": 5})


@pytest.mark.parametrize("pair", [("a b", "x"), ("a", "x\r\nB: y"), ("", "x"), ("a", "\u20ac")])
def test_what_cannot_be_a_header_is_refused(pair):
    with pytest.raises(InvalidTarget, match="header"):
        lines(dict([pair]))


def test_they_reach_the_server(kind):
    options = {"api_key": "secret", "headers": {"traceparent": "00-1-2-01"}, "binary": True}
    with ScriptedServer(GOOD) as server, kind(server.url, **options) as client:
        client.infer("m", {"x": np.zeros(1)}, headers={"X-Mine": "y"})
        head = server.calls[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == b"POST /v2/models/m/infer HTTP/1.1"
    expected = {b"Authorization: Bearer secret", b"traceparent: 00-1-2-01", b"X-Mine: y"}
    assert expected <= set(head)


def test_the_current_span_of_opentelemetry_is_the_parent(monkeypatch):
    context = types.SimpleNamespace(is_valid=True, trace_id=0xAB, span_id=0xCD, trace_flags=1)
    span = types.SimpleNamespace(get_span_context=lambda: context)
    api = types.SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    expected = f"traceparent: 00-{0xAB:032x}-{0xCD:016x}-01"
    assert expected in lines()
    assert expected not in lines({"TraceParent": "mine"})
    context.is_valid = False
    assert not [one for one in lines() if one.startswith("traceparent")]


def test_a_host_of_the_options_takes_the_place_of_the_clients_own(kind):
    options = {"headers": {"host": "iris.default.example.com", "A": "1"}}
    with ScriptedServer(GOOD) as server, kind(server.url, **options) as client:
        client.infer("m", {"x": np.zeros(1)})
        assert client.url == server.url
        head = server.calls[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert [one for one in head if one.lower().startswith(b"host:")] == [
        b"Host: iris.default.example.com"
    ]


@pytest.mark.parametrize("value", ["", "a b", "a\r\nB:", "\u00e9"])
def test_a_host_that_is_none_is_refused(value):
    with pytest.raises(InvalidTarget, match="header 'Host'"):
        lines(headers={"Host": value})
