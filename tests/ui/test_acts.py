"""What acts do is in tests/server/test_dashboard.py, with whole servers."""

import pytest

from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Unavailable
from inferd.ui.acts import GROUPS, Act, decode_act, do


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ('{"act":"load","model":"m"}', "model-repository"),
        ('{"act":"unload","model":"m"}', "model-repository"),
        ('{"act":"reload","model":"m"}', "model-repository"),
        ('{"act":"logging","settings":{}}', "logging"),
        ('{"act":"trace","settings":{},"model":"m"}', "trace"),
        ('{"act":"trace","settings":{},"model":null}', "trace"),
        ('{"act":"trace","settings":{}}', "trace"),
    ],
)
def test_each_act_belongs_to_the_group_of_the_call_that_does_the_same(text, group):
    assert GROUPS[type(decode_act(memoryview(text.encode())))] == group


def test_every_act_has_a_group():
    assert set(Act.__args__) == GROUPS.keys()


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"null", b"[]", b"{}", b"\xff", b'{"model":"m"}', b'{"act":"","model":"m"}'),
        *(b'{"act":"load","model":1}', b'{"act":"load","model":null}', b'{"act":["load"]}'),
        *(b'{"act":"load","model":"m","force":true}', b'{"act":"logging","settings":[]}'),
        *(b'{"act":"load","model":"m"} x', b'{"act":"load","model":"\xff"}', b"[" * 50000),
        b'{"act":"logging","settings":' + b'{"a":' * 20000,
    ],
)
def test_what_is_no_act_is_refused(text):
    with pytest.raises(InvalidRequest, match="the body is no act"):
        decode_act(memoryview(text))


@pytest.mark.parametrize("act", ["load", "unload", "reload"])
async def test_models_change_only_where_clients_may_change_them(act):
    with pytest.raises(Unavailable, match="--model-control-mode=none here"):
        await do(Engine(), decode_act(memoryview(b'{"act":"%b","model":"m"}' % act.encode())))


async def test_settings_are_checked_as_those_of_v2():
    act = decode_act(memoryview(b'{"act":"trace","settings":{"trace_rate":1}}'))
    with pytest.raises(InvalidRequest, match="trace_rate"):
        await do(Engine(), act)
