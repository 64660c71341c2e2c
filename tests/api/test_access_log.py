"""The lines of the access log: what they say of an inference, and how texts of clients look."""

import json
import time

import pytest
from fields import with_fields

from inferd.api.access_log import MOST_TEXT, AccessLog, CommonLines, JsonLines, LineClock, TextLines
from inferd.core.request import InferRequest
from inferd.http.h2.request import RequestHead
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.request_log import Notes
from inferd.observe.line_file import LineFile

SECOND = 1_000_000_000
NOON = 1_769_860_800 * SECOND  # 2026-01-31


@pytest.fixture
def written(tmp_path):
    """written(kind, *tell) is the text that the lines of `kind` make of what they are told."""

    def write(kind, *tell, protocol="HTTP/1.1", address="[::1]:5000"):
        file = LineFile(tmp_path / "lines", "the log")
        file.open()
        lines = kind(AccessLog(file, "text"), address, protocol)
        for one in tell:
            one(lines)
        file.close(30)
        return (tmp_path / "lines").read_text()

    return write


def inference(**more):
    times = {"queued_ns": 1_000_000, "started_ns": 3_500_000, "ended_ns": 3_600_900}
    return with_fields(InferRequest("m", id="a"), **times | more)


def answer_to(target=b"/v2/models/m/infer", about=None, version="3", began_ns=NOON):
    request = HttpRequest(b"POST", target, {}, True, False)
    notes = Notes(about, version)
    return lambda lines: lines.answered(request, notes, HttpAnswer(200, [b"12", b"3"]), 7, began_ns)


def test_times_are_those_of_the_inference(written):
    text = written(TextLines, answer_to(about=inference()))
    start = '2026-01-31T12:00:00.000Z [::1]:5000 HTTP/1.1 "POST /v2/models/m/infer" 200 '
    rest = 'model="m" version=3 id="a" in=7 out=3 queue_us=2500 compute_us=100 total_us='
    assert text.startswith(start + rest)


@pytest.mark.parametrize(
    ("times", "queue_us", "compute_us"),
    [
        ({"queued_ns": 0}, 0, 100),  # it did not wait
        ({"started_ns": 0, "ended_ns": 0}, 0, 0),  # it left the queue without running
        ({"ended_ns": 0}, 2500, 0),  # it was given up while it ran
        ({"started_ns": 0}, 0, 0),  # a cache answered it
    ],
)
def test_what_an_inference_did_not_get_to_took_no_time(written, times, queue_us, compute_us):
    line = json.loads(written(JsonLines, answer_to(about=inference(**times))))
    assert (line["queue_us"], line["compute_us"]) == (queue_us, compute_us)


def test_the_time_is_when_the_request_was_there(written):
    began_ns = time.time_ns() - 5 * SECOND
    line = json.loads(written(JsonLines, answer_to(began_ns=began_ns)))
    assert 5e6 <= line["total_us"] < 60e6


def test_the_clock_goes_on():
    clock = LineClock()
    clock.set(NOON + 999_999_999)
    assert clock.text == "2026-01-31T12:00:00.999Z"
    assert clock.common == "31/Jan/2026:12:00:00 +0000"
    clock.set(NOON + SECOND + 1_000_000)
    assert clock.text == "2026-01-31T12:00:01.001Z"
    clock.set(NOON + 86400 * SECOND)
    assert clock.common == "01/Feb/2026:12:00:00 +0000"


@pytest.mark.parametrize("kind", [TextLines, JsonLines, CommonLines])
def test_long_texts_are_cut(written, kind):
    about = InferRequest("n" * 9999, id="i" * 9999)
    text = written(kind, answer_to(b"/" + b"t" * 9999, about=about, version="v" * 9999))
    assert len(text) < 4 * MOST_TEXT + 300
    assert text.count("\n") == 1


@pytest.mark.parametrize("kind", [TextLines, JsonLines, CommonLines])
@pytest.mark.parametrize("text", ["\n", "\r", '" x', "\\", "\x00", "\u2028", "\ud800", "é"])
def test_texts_of_clients_stay_in_their_field(written, kind, text):
    about = InferRequest(text, text, text)
    target = b"/" + text.encode("utf-8", "surrogatepass")
    line = written(kind, answer_to(target, about=about, version=""))
    assert line.isascii() and line.endswith("\n")
    assert line[:-1].isprintable()
    if kind is JsonLines:
        found = json.loads(line)
        assert (found["model"], found["version"], found["id"]) == (text, text, text)


@pytest.mark.parametrize("kind", [TextLines, JsonLines, CommonLines])
def test_a_line_about_what_cannot_be_read_is_a_whole_one(written, kind):
    unread = HttpRequest(b"", b"", {}, False, False)

    def tell(lines):
        lines.answered(unread, Notes(), HttpAnswer(400, []), 0, NOON)

    [first, second] = written(kind, tell, answer_to()).splitlines()
    if kind is JsonLines:
        assert json.loads(first)["status"] == 400
        assert json.loads(second)["status"] == 200
    else:
        assert '" "' in first.replace(" HTTP/1.1", "") and " 400 " in first


def test_a_code_of_grpc_that_nobody_knows_is_a_number(written):
    head = RequestHead(b"POST", b"/p.S/M", [], 0)

    def tell(lines):
        lines.called(head, Notes(), 99, 0, 0, NOON)
        lines.called(head, Notes(), 5, 0, 0, NOON)

    assert [line.split()[5] for line in written(TextLines, tell).splitlines()] == [
        "99",
        "NOT_FOUND",
    ]
    common = written(CommonLines, tell).splitlines()[-2:]
    assert [line.split()[-2] for line in common] == ["500", "404"]
