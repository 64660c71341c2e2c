import pytest

from inferd.observe.tracing.trace import Parent, read_parent

TRACE = "0af7651916cd43dd8448eb211c12666c"
SPAN = "b7ad6b7169242424"


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False), ("03", True)])
def test_ids_and_the_sampled_flag_are_read(flags, is_sampled):
    expected = Parent(int(TRACE, 16), int(SPAN, 16), is_sampled)
    assert read_parent(f"00-{TRACE}-{SPAN}-{flags}") == expected


def test_a_later_version_may_go_on():
    assert read_parent(f" 01-{TRACE}-{SPAN}-01-more ") is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
        "0" * 100_000,
    ],
)
def test_anything_else_says_nothing(text):
    assert read_parent(text) is None
