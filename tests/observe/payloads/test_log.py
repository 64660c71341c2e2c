"""The log of payloads between those who add events and the thread that writes them."""

import threading

import pytest
from patience import wait_until

from inferd.config.options.log import PayloadPolicy, PayloadSettings
from inferd.observe.payloads.event import REQUEST, PayloadEvent
from inferd.observe.payloads.files import EventFile
from inferd.observe.payloads.log import PayloadLog

PATIENCE_S = 30


class Sink:
    """Keeps what it gets, once it `may_write`; fails if told to."""

    def __init__(self):
        self.ids = []
        self.attributes = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.fault = None
        self.is_closed = False

    def open(self):
        pass

    def write(self, event, attributes):
        self.may_write.wait()
        if self.fault:
            raise self.fault
        self.ids.append(event.id)
        self.attributes.append(attributes)

    def close(self):
        self.is_closed = True


@pytest.fixture
def sink():
    return Sink()


def event(id, size=10):
    return PayloadEvent(id, REQUEST, 0.0, "http", "m", "", b"x" * size, None, size)


def counts(log):
    return {labels.split('"')[1]: count for labels, count in log.families()[0].samples}


def test_events_are_written_in_their_order_before_it_closes(sink):
    log = PayloadLog(PayloadSettings(), sink)
    for number in range(100):
        log.add(event(str(number)))
    log.close(PATIENCE_S)
    assert sink.ids == [str(number) for number in range(100)] and sink.is_closed
    assert counts(log) == {"written": 100, "dropped": 0, "failed": 0}
    assert log.families()[1].samples == [("", 0)]


def test_what_waits_when_it_must_close_is_lost_and_said(sink, caplog):
    log = PayloadLog(PayloadSettings(), sink)
    sink.may_write.clear()
    for number in range(3):
        log.add(event(str(number)))
    wait_until(lambda: log._queue.qsize() == 2)
    log.close(0.01)
    sink.may_write.set()
    assert "3 payloads were lost: there was no time to write them" in caplog.text


def test_each_event_says_where_it_was_made(sink):
    log = PayloadLog(PayloadSettings(service="s", namespace="n", source="o"), sink)
    log.add(event("1"))
    log.close(PATIENCE_S)
    [found] = sink.attributes
    assert found["inferenceservicename"] == "s" and found["namespace"] == "n"
    assert (found["source"], found["component"], found["id"]) == ("o", "predictor", "1")


def test_what_has_no_room_is_dropped_and_counted_until_there_is_some(sink):
    log = PayloadLog(PayloadSettings(buffer_bytes=5000), sink)
    sink.may_write.clear()
    for _ in range(3):
        assert log.has_room(1000)
        log.add(event("1", 1000))
    assert not log.has_room(1000)
    assert counts(log)["dropped"] == 1
    sink.may_write.set()
    log.close(PATIENCE_S)
    assert log.has_room(1000)


@pytest.mark.parametrize("fault", [OSError(28, "No space"), ValueError("odd"), KeyError()])
def test_an_event_that_fails_costs_itself_alone(sink, fault, caplog):
    log = PayloadLog(PayloadSettings(), sink)
    sink.fault = fault
    log.add(event("1"))
    while not counts(log)["failed"]:
        pass
    sink.fault = None
    log.add(event("2"))
    log.close(PATIENCE_S)
    assert sink.ids == ["2"] and counts(log) == {"written": 1, "dropped": 0, "failed": 1}
    assert "1 payloads were lost: " in caplog.text
    assert not caplog.text.endswith(": \n")


def test_a_file_that_cannot_be_closed_costs_no_later_event(sink, monkeypatch, caplog):
    log = PayloadLog(PayloadSettings(), sink)
    log.add(event("1"))
    monkeypatch.setattr(sink, "close", lambda: int("what a library says"))  # no OSError
    log.reopen()
    log.add(event("2"))
    log.close(PATIENCE_S)
    assert sink.ids == ["1", "2"]
    assert "what a library says" in caplog.text


def test_each_model_is_sampled_as_its_policy_says(sink):
    policies = {"some": PayloadPolicy(0.25), "all": PayloadPolicy(1.0)}
    log = PayloadLog(PayloadSettings(PayloadPolicy(0.0), policies), sink)
    taken = {model: sum(log.takes(model) for _ in range(4000)) for model in ("some", "all", "x")}
    assert taken["all"] == 4000 and taken["x"] == 0
    assert 700 < taken["some"] < 1300
    assert log.policy("some") is policies["some"]
    log.close(PATIENCE_S)
    assert sink.is_closed


def test_a_file_that_was_renamed_is_made_anew_before_and_after_events(tmp_path):
    path = tmp_path / "log.jsonl"
    log = PayloadLog(PayloadSettings(), EventFile(path, 10_000, 2))
    log.open()
    path.rename(tmp_path / "0")
    log.reopen()
    log.add(event("1"))
    log.close(PATIENCE_S)
    assert '"1"' in path.read_text() and not (tmp_path / "0").read_text()

    log = PayloadLog(PayloadSettings(), Renamed(path, tmp_path / "1"))
    log.add(event("2"))
    log.reopen()
    log.add(event("3"))
    log.close(PATIENCE_S)
    assert '"2"' in (tmp_path / "1").read_text() and '"3"' in path.read_text()


class Renamed(EventFile):
    """A file that somebody renames after its first event."""

    def __init__(self, path, later):
        super().__init__(path, 10_000, 2)
        self.path, self.later = path, later

    def write(self, event, attributes):
        super().write(event, attributes)
        if not self.later.exists():
            self.path.rename(self.later)
