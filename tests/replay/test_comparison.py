"""What becomes of logged requests that are sent again, one by one."""

import json
import re

import pytest

from inferd.observe.payloads.event import REQUEST, RESPONSE
from inferd.replay.comparison import CUT, DIFFERENT, FAILED, SAME, UNANSWERED, Replay
from inferd.replay.entries import LoggedBody, PayloadReader
from inferd.replay.server import ReplayAnswer


def answer(*values):
    output = {"name": "Y", "datatype": "FP32", "shape": [len(values)], "data": list(values)}
    return {"model_name": "m", "outputs": [output]}


class Server:
    """Gives the same reply to each request."""

    def __init__(self, body=None, status=200):
        self.reply = ReplayAnswer(status, LoggedBody(json.dumps(body).encode(), None, False))
        self.sent = []

    def check(self):
        pass

    def send(self, request):
        self.sent.append(request)
        return self.reply


@pytest.fixture
def replayed(tmp_path):
    """replayed(server, [answers], tolerance, **request) is a replay of one request, its outcome."""

    def run(server, answers, tolerance=None, **more):
        events = [{"id": "1", "type": REQUEST, "modelname": "m", "data": {}} | more]
        events += [{"id": "1", "type": RESPONSE} | one for one in answers]
        path = tmp_path / "log"
        path.write_text("".join(json.dumps(one) + "\n" for one in events))
        replay, outcomes = Replay(PayloadReader([path]), server, tolerance), []
        replay.run(outcomes.append)
        [outcome] = outcomes
        assert replay.counts[outcome.kind] == sum(replay.counts.values()) == 1
        return replay, outcome

    return run


def test_rounding_makes_no_difference(replayed):
    replay, outcome = replayed(Server(answer(1.00001)), [{"data": answer(1.0)}])
    assert (outcome.kind, outcome.text) == (SAME, "") and replay.is_same


@pytest.mark.parametrize(("tolerance", "kind"), [(None, DIFFERENT), (0.0, DIFFERENT), (0.2, SAME)])
def test_the_tolerance_says_what_is_the_same(replayed, tolerance, kind):
    replay, outcome = replayed(Server(answer(1.1)), [{"data": answer(1.0)}], tolerance)
    assert outcome.kind == kind and replay.is_same == (kind == SAME)


def test_no_tolerance_is_exact(replayed):
    assert replayed(Server(answer(1.0)), [{"data": answer(1.0)}], 0.0)[1].kind == SAME


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (answer(1.0, 2.0), r"output 'Y' is FP32 \[2\], not FP32 \[1\]"),
        ({"model_name": "m", "outputs": []}, "output 'Y' is missing"),
    ],
)
def test_other_outputs_are_different(replayed, body, text):
    _, outcome = replayed(Server(body), [{"data": answer(1.0)}])
    assert outcome.kind == DIFFERENT
    assert re.fullmatch(text, outcome.text)


def test_an_answer_that_is_none_fails(replayed):
    replay, outcome = replayed(Server(["odd"]), [{"data": answer(1.0)}])
    assert outcome.kind == FAILED and "an answer cannot be read" in outcome.text
    assert not replay.is_same


def test_an_error_fails_and_is_shown(replayed):
    _, outcome = replayed(Server({"error": "no"}, 400), [{"data": answer(1.0)}])
    assert outcome.kind == FAILED
    assert str(outcome).endswith("""event 1: the server answers 400 {"error": "no"}""")


def test_a_request_that_was_cut_is_not_sent(replayed):
    server = Server(answer(1.0))
    replay, outcome = replayed(server, [{"data": answer(1.0)}], truncated="true")
    assert outcome.kind == CUT and server.sent == [] and not replay.is_same
    assert replay.sent_count == 0


def test_an_answer_that_was_cut_is_not_compared(replayed):
    cut = {"data_base64": "e30=", "truncated": "true"}
    replay, outcome = replayed(Server(answer(1.0)), [cut])
    assert outcome.kind == CUT and replay.sent_count == 1


@pytest.mark.parametrize(
    ("answers", "status", "text"),
    [
        ([], 200, "the log has no answer; now there is one"),
        ([], 400, "the log has no answer; now it fails with 400"),
        ([{"data": answer(1.0)}] * 2, 200, "it had 2 answers, which are not compared"),
    ],
)
def test_without_one_answer_there_is_nothing_to_compare(replayed, answers, status, text):
    replay, outcome = replayed(Server(answer(2.0), status), answers)
    assert outcome.kind == UNANSWERED and outcome.text.startswith(text) and replay.is_same
