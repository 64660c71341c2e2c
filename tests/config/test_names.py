"""Which texts can be names of models."""

import pytest

from inferd.config.names import has_separators, is_model_name


@pytest.mark.parametrize("name", ["m", "my net", "é", "1", "a.b", "a-b_c", "x" * 300, "a..b"])
def test_a_name(name):
    assert is_model_name(name)


@pytest.mark.parametrize("name", ["", " ", "\t", ".", "..", ".hidden", "a/b", "a\\b", "a\0", "a\n"])
def test_no_name(name):
    assert not is_model_name(name)


def test_separators_make_a_path():
    assert [has_separators(name) for name in ("a/b", "..\\a", "a\0", "a.b", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]
