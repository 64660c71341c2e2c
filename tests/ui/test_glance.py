import json

import pytest

from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.errors import Unsupported
from inferd.ui.glance import Glance
from inferd.ui.topics import Subject

OVERVIEW = Subject("overview")


async def test_a_glance_tells_how_many_models_there_are_and_the_state():
    engine = Engine()
    glance = Glance(engine, "me")
    feed = glance.feed(OVERVIEW)
    engine.set_state("a", 1, ModelState.READY)
    engine.set_state("b", 1, ModelState.UNAVAILABLE, "why")
    engine.set_state("b", 2, ModelState.LOADING)
    await glance.refresh({OVERVIEW})
    [event] = feed.news()
    told = json.loads(event.data)
    assert event.name == "tick"
    assert told["models"] == {"ready": 1, "loading": 1, "failed": 1, "unloaded": 0}
    assert told["server"]["state"] == "starting" and told["server"]["id"] == "me"
    assert told["server"]["started"] <= told["time"]
    assert feed.news() == ()
    engine.finish_loading()
    engine.drain()
    await glance.refresh({OVERVIEW})
    [event] = feed.news()
    assert json.loads(event.data)["server"]["state"] == "draining"


def test_a_glance_knows_no_other_topic():
    with pytest.raises(Unsupported, match="no events of log"):
        Glance(Engine(), None).feed(Subject("log"))
