import pytest

from inferd.config.options.header_forward import read_header_pattern
from inferd.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("x-.*", "X-Tenant", True),
        ("x-.*", "y-tenant", False),
        ("(?-i)x-.*", "x-tenant", True),
        ("(?-i)x-.*", "X-Tenant", False),
    ],
)
def test_case_matters_only_where_the_pattern_says_so(text, name, fits):
    assert bool(read_header_pattern("--option", text).fullmatch(name)) == fits


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x-(", "is not a regular expression"),
        ("[[:alpha:]]+", r"set within a set"),
        ("x{99999999999999999999}", "is not a regular expression"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_name_of_its_option(text, reason):
    with pytest.raises(InvalidConfig, match=rf"^--option: .*{reason}"):
        read_header_pattern("--option", text)
