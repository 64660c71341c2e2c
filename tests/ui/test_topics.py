from inferd.config.options.access import API_GROUPS
from inferd.ui.topics import GROUPS


def test_each_topic_needs_access_to_api_groups_that_there_are() -> None:
    assert GROUPS
    assert all(groups and set(groups) <= set(API_GROUPS) for groups in GROUPS.values())


def test_every_topic_needs_access_to_the_statistics() -> None:
    assert all(groups[0] == "statistics" for groups in GROUPS.values())
