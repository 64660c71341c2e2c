"""What a backend that knows nothing of a model's rows says."""

from inferd.core.rows import AS_CONFIGURED, UNKNOWN, Joining


def test_who_says_nothing_leaves_it_open():
    assert UNKNOWN.rows == "open"


def test_a_model_never_joins_only_if_there_is_a_reason_that_its_configuration_does_not_give():
    assert Joining("alone", "CumSum adds up rows").never_joins
    assert not AS_CONFIGURED.never_joins
    assert not Joining("compared", "the model's file does not tell").never_joins
