"""One line per failure, its traceback once."""

import logging
import weakref

import pytest

from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, NotLoadable
from inferd.http.failure import MAX_KINDS, FailureLog, forget_frames


@pytest.fixture
def log(caplog):
    with caplog.at_level(logging.DEBUG, "inferd.test"):
        yield FailureLog(logging.getLogger("inferd.test"))


def raised(code="1 / 0"):
    try:
        eval(code)
    except ZeroDivisionError as error:
        return error


def caused(error, cause):
    error.__cause__ = cause
    return error


def failed(cause):
    return caused(BackendFailed("the model broke"), cause)


def test_a_failing_model_is_a_warning_with_its_traceback_once(log, caplog):
    for _ in range(3):
        log.note("/there", failed(raised()))
    assert caplog.messages == ["/there: the model broke"] * 3
    assert [bool(one.exc_info) for one in caplog.records] == [True, False, False]
    assert {one.levelno for one in caplog.records} == {logging.WARNING}
    log.note("/there", BackendFailed("without a cause"))
    assert not caplog.records[-1].exc_info


def test_a_mistake_in_a_configuration_has_no_traceback(log, caplog):
    mistake = caused(InvalidConfig("m/config.pbtxt:1:1: no such field"), raised())
    log.note("/there", caused(NotLoadable("failed to load 'm': no such field"), mistake))
    assert caplog.messages == ["/there: failed to load 'm': no such field"]
    assert not caplog.records[0].exc_info


def test_a_failing_step_of_an_ensemble_has_the_traceback_of_its_model(log, caplog):
    origin = raised()
    log.note("/there", failed(failed(origin)))
    assert caplog.records[0].exc_info[1] is origin
    log.note("/there", failed(failed(None)))
    assert not caplog.records[1].exc_info


def test_the_unexpected_is_an_error_with_its_traceback_once(log, caplog):
    for place in ("/there", "/elsewhere"):
        log.note(place, raised())
    assert caplog.messages[0] == "unexpected failure in /there: ZeroDivisionError: division by zero"
    assert [bool(one.exc_info) for one in caplog.records] == [True, False]
    assert {one.levelno for one in caplog.records} == {logging.ERROR}


def test_each_place_in_the_code_has_its_own_traceback(log, caplog):
    log.note("/there", raised())
    log.note("/there", raised("\n(\n1 / 0)"))
    assert all(one.exc_info for one in caplog.records)


def test_the_fault_of_a_client_is_not_logged(log, caplog):
    log.note("/there", InvalidRequest("bad shape"))
    assert not caplog.records


def test_long_urls_and_texts_are_cut(log, caplog):
    log.note("/" * 10_000, ValueError("x" * 10_000))
    assert len(caplog.messages[0]) < 500


def test_only_so_many_tracebacks_are_remembered(log, caplog):
    for line in range(MAX_KINDS + 1):
        log.note("/there", raised("(" + "\n" * line + "1 / 0)"))
    assert [bool(one.exc_info) for one in caplog.records].count(True) == MAX_KINDS


def test_an_error_whose_frames_are_forgotten_keeps_nothing_that_they_held():
    class Large:
        """Something that is seen to go."""

    def fail():
        large = Large()
        gone.append(weakref.ref(large))
        try:
            raise KeyError
        except KeyError as error:
            msg = "no"
            raise InferdError(msg) from error

    gone = []
    kept = None
    try:
        fail()
    except InferdError as error:
        kept = error
    assert gone[0]() is not None
    forget_frames(kept)
    assert gone[0]() is None and isinstance(kept.__cause__, KeyError)
