"""The journal: what a process that starts must make."""

from inferd.fleet.changes import Journal


def noted(*changes):
    """Return a journal of (change, key, is_erasing)."""
    journal = Journal()
    for change, key, is_erasing in changes:
        journal.note(change, key, b"%d" % change, is_erasing=is_erasing)
    return journal


def numbers(journal):
    return [entry.change for entry in journal]


def test_a_later_change_makes_an_earlier_one_about_the_same_unnecessary():
    journal = noted((1, "model/a", False), (2, "model/b", False), (3, "model/a", False))
    assert numbers(journal) == [2, 3]


def test_changes_are_made_in_the_order_in_which_they_ended():
    journal = noted((2, "model/b", False), (1, "model/a", False))
    assert numbers(journal) == [2, 1]
    first = journal.after(0)
    assert first.change == 2
    assert journal.after(first.place).change == 1
    assert journal.after(journal.after(first.place).place) is None


def test_one_that_undoes_others_is_made_by_whoever_has_made_them():
    journal = noted((1, "system/r", False), (2, "system/r", True))
    assert numbers(journal) == [2]
    journal.tidy()
    assert numbers(journal) == []


def test_one_can_undo_all_below_a_key():
    journal = noted((1, "system/r", False), (2, "cuda/r", False), (3, "system/", True))
    assert numbers(journal) == [2, 3]


def test_what_is_needed_no_more_is_returned():
    journal = noted((1, "model/a", False))
    [gone] = journal.note(2, "model/a", b"2", is_erasing=False)
    assert gone.body == b"1"
