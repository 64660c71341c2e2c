import sys

import pytest
import uvloop

from inferd.aio.event_loop import new_event_loop


@pytest.mark.parametrize("is_there", [True, False])
def test_it_is_uvloops_where_that_is_installed(is_there, monkeypatch):
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    loop.close()
    assert isinstance(loop, uvloop.Loop) == is_there
