from inferd.cli.help import serve_help
from inferd.config.options.option import groups_of, options_of
from inferd.config.server import ServerConfig


def test_every_option_is_in_the_help():
    words = serve_help().split()
    assert not [each.flag for each in options_of(ServerConfig).values() if each.flag not in words]


def test_options_stand_below_the_heading_of_their_group():
    text = serve_help()
    for group, options in groups_of(ServerConfig).items():
        own = [each for each in options if each.acted_on]
        below = text.partition(f"\n{group}\n")[2].partition("\n\n")[0]
        assert [f"  {o.flag} " in below for o in own] == [True] * len(own), group
        assert below.count("\n  --") + below.startswith("  --") == len(own)


def test_a_line_has_room_in_a_narrow_terminal():
    assert max(len(line) for line in serve_help().splitlines()) <= 98


def test_defaults_stand_beside_their_option():
    assert "[8000]" in serve_help()
    assert "[127.0.0.1; 0.0.0.0 in a" in serve_help()
