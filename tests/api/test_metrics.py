"""The metrics port's only URL: requests in, answers out; the sockets are those of every port."""

import asyncio
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferd.api.metrics import MetricsRoutes
from inferd.config.options.metrics import MetricsSettings
from inferd.http.message import HttpRequest
from inferd.observe.devices import Devices
from inferd.observe.family import Family

PATIENCE_S = 30


class Meter:
    """A device that may take its time, or break."""

    def __init__(self, error=None):
        self.may_tell = threading.Event()
        self.may_tell.set()
        self._error = error

    def families(self):
        assert self.may_tell.wait(PATIENCE_S)
        if self._error:
            raise self._error
        return [Family("meter", "gauge", "What it says", [("", 7)])]


@pytest.fixture
def routes_of(models):
    """routes_of(meter) are the routes of an engine with the models of `serving`."""

    def build(meter=None, timeout_s=PATIENCE_S):
        engine, _ = models()
        return MetricsRoutes(engine, MetricsSettings(), Devices(meter, None, 0.0), timeout_s)

    return build


async def ask(routes, target=b"/metrics", method=b"GET"):
    answer = await routes.answer(HttpRequest(method, target, {}, True, False))
    return answer.status, b"".join(answer.buffers).decode(), answer


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("target", [b"/metrics", b"/metrics/", b"/metrics?name=x"])
async def test_metrics_have_every_version_and_the_process_itself(routes_of, target):
    status, text, answer = await ask(routes_of(Meter()), target)
    assert (status, answer.content_type) == (200, b"text/plain; charset=utf-8")
    found = families(text)
    versions = [s.labels for s in found["nv_inference_request_success"].samples]
    assert {"model": "id", "version": "3"} in versions and {
        "model": "id",
        "version": "1",
    } in versions
    assert found["process_cpu_seconds"].samples[0].value > 0
    assert found["meter"].samples[0].value == 7


async def test_anything_else_is_not_found_and_only_get_is_allowed(routes_of):
    routes = routes_of()
    assert (await ask(routes, b"/v2"))[0] == 404
    assert (await ask(routes, b"/"))[0] == 404
    status, text, answer = await ask(routes, method=b"POST")
    assert (status, answer.headers) == (405, b"Allow: GET, HEAD\r\n")
    assert "Method Not Allowed: POST" in text
    assert (await ask(routes, method=b"HEAD"))[0] == 200


async def test_everybody_who_reaches_the_port_may_ask(routes_of):
    routes = routes_of()
    assert routes.is_guarded is False
    routes.check_access(b"/metrics", {})


async def test_other_work_goes_on_while_the_text_is_written(routes_of):
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await ask(routes_of())
    counting.cancel()
    assert turns > 10


async def test_devices_that_hang_are_left_out(routes_of, caplog):
    meter = Meter()
    meter.may_tell.clear()
    routes = routes_of(meter, timeout_s=0.01)
    for _ in range(2):
        status, text, _ = await ask(routes)
        found = families(text)
        assert status == 200
        assert "meter" not in found and "nv_inference_count" in found
    assert "the devices do not tell" in caplog.text
    meter.may_tell.set()


async def test_what_goes_wrong_is_an_answer_and_the_reason_is_in_the_log(routes_of, caplog):
    status, text, _ = await ask(routes_of(Meter(ArithmeticError("a secret"))))
    assert status == 500
    assert "secret" not in text
    assert "a secret" in caplog.text


MODELS = 1000


async def test_other_work_has_its_turns_while_a_thousand_models_are_reported(
    models, add_model, identity
):
    engine, _ = models()
    for number in range(MODELS):
        add_model(engine, f"m{number}", identity)
    routes = MetricsRoutes(engine, MetricsSettings(), Devices(None, None, 0.0), PATIENCE_S)
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    answer = (await ask(routes))[2]
    other.cancel()
    assert b"".join(answer.buffers).count(b"nv_inference_request_success{") >= MODELS
    # A turn for every buffer, none of which is long, and for the snapshots before them.
    assert turns >= len(answer.buffers) > MODELS // 10
    assert max(map(len, answer.buffers)) < 100_000
