import pytest

from inferd.config.options.delay import NO_DELAY, DelayedStart, read_delayed_start
from inferd.errors import InvalidConfig


def test_without_the_variables_nothing_is_delayed():
    assert read_delayed_start({}) == DelayedStart(0, 0)
    assert read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": "", "OTHER": "5"}) == NO_DELAY


def test_each_variable_has_its_number():
    assert read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": "3"}) == DelayedStart(3, 0)
    assert read_delayed_start({"TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "2"}) == DelayedStart(0, 2)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9" * 10, " "])
def test_what_is_no_number_of_requests_is_reported(text):
    with pytest.raises(InvalidConfig, match="TRITONSERVER_DELAY_SCHEDULER is"):
        read_delayed_start({"TRITONSERVER_DELAY_SCHEDULER": text})
