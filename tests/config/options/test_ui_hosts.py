import pytest

from inferd.config.options.ui_hosts import read_ui_hosts
from inferd.config.server import ServerConfig
from inferd.config.sources import check_server_config
from inferd.errors import InvalidConfig


def test_names_are_separated_by_commas_and_the_option_may_be_repeated():
    names = read_ui_hosts(["Box.example.org, *.example.net", "box_1.", "xn--bcher-kva.example"])
    assert names == {"box.example.org", "*.example.net", "box_1", "xn--bcher-kva.example"}
    assert read_ui_hosts([]) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "a,", "https://a", "a:8000", "a/b", "*", "*.", "*a", "a.*", "a..b", ".a", "-a", "a-"),
        *("[::1]", "a b", "b\u00fccher.example", "x" * 64, "x." * 130, "a\nb", "*.*.a"),
    ],
)
def test_what_is_no_name_is_refused_at_the_start(text):
    with pytest.raises(InvalidConfig, match=r"--ui-hosts: .* is no name of a host"):
        read_ui_hosts([text])
    with pytest.raises(InvalidConfig, match="--ui-hosts"):
        check_server_config(ServerConfig(ui_hosts=(text,)))
