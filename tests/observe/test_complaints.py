"""What is lost is told each time that ten times as much is lost."""

import logging

import pytest

from inferd.observe.complaints import Complaints


@pytest.mark.parametrize(
    ("counts", "reported"), [([1, 1], ["1"]), ([7, 5], ["7", "12"]), ([1000, 1], ["1000"])]
)
def test_complaints_are_made_each_time_ten_times_as_much_is_lost(caplog, counts, reported):
    complaints = Complaints(logging.getLogger("inferd.test"), "were lost")
    with caplog.at_level(logging.WARNING, "inferd.test"):
        for count in counts:
            complaints.add(count, ": no room")
    assert caplog.messages == [f"{count} were lost: no room" for count in reported]
