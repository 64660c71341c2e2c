"""Bodies received in rows: which ones are, and that their answers are the same as without."""

import gzip
import json
import logging
from contextlib import asynccontextmanager

import numpy as np
import pytest

from inferd.api.routes import HttpRoutes, TableRoutes
from inferd.core.request import InferResponse
from inferd.http.failure import FailureLog
from inferd.memory.batch_memory import IDLE_SWEEPS, LEAST_BYTES
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.rest.codec import JsonRules

COUNT = LEAST_BYTES // 4
TARGET = b"/v2/models/rows/infer"


class Noting:
    """A scheduler that gives back input T, and notes where it was received."""

    pending_count = 0

    def __init__(self):
        self.rows = []

    async def run(self, request):
        slot = request.slot
        is_there = slot is not None and slot.block is not None
        assert not is_there or request.inputs[0].data.obj is slot.block
        self.rows.append(is_there)
        outputs = [Tensor("T", t.datatype, t.shape, t.data) for t in request.inputs]
        return InferResponse("", "", outputs=outputs)


@pytest.fixture
def rows(models, add_model):
    """An engine whose model "rows" was just asked for two requests together, and its scheduler."""
    engine, _ = models()
    noting = Noting()
    add_model(engine, "rows", noting)
    engine.capacity.batch_memory.note(TARGET, LEAST_BYTES).pool.note_joined(as_view=True)
    return engine, noting


def request_of(post, number, *lines, size=LEAST_BYTES, pad=0, coding=bytes, **fields):
    """Return a binary request, and the bytes of its tensor."""
    data = np.full(size // 4, number, np.float32).tobytes()
    given = {"name": "T", "datatype": "FP32", "shape": [size // 4]}
    given["parameters"] = {"binary_data_size": fields.pop("declared", size)}
    document = {"inputs": [given], "parameters": {"binary_data_output": True}} | fields
    text = json.dumps(document).encode() + b" " * pad
    lines = (f"Inference-Header-Content-Length: {len(text)}", *lines)
    return post(TARGET.decode(), coding(text + data), *lines), data


async def ask(client, post, number, *lines, **how):
    """Ask, and check that what was sent comes back."""
    sent, data = request_of(post, number, *lines, **how)
    answer = await client.ask(sent)
    assert answer.status == 200, answer.body
    assert answer.body.endswith(data)
    return answer


@asynccontextmanager
async def after_some(serving, engine, post):
    """Serve `engine`; yield the site and a client whose first three requests were answered."""
    async with serving(engine=engine) as site:
        client = await site.connect()
        for number in range(3):
            await ask(client, post, number)
        yield site, client


async def test_bodies_of_a_model_that_joins_are_received_in_rows(serving, rows, post):
    engine, noting = rows
    async with serving(engine=engine) as site:
        client = await site.connect()
        for number in range(6):
            await ask(client, post, number)
        # The first text was not known yet: its body was put in one piece again.
        assert noting.rows == [False, True, True, True, True, True]
        answer = await ask(client, post, 7, id="x")
        assert b'"id":"x"' in answer.body
        assert engine.capacity.buffered_bytes == 0
        [connection] = site.server.endpoint.connections
        assert connection._reader.heads.request.slot is None


@pytest.mark.parametrize(
    "how",
    [
        {"size": LEAST_BYTES + 4},
        {"size": LEAST_BYTES // 2},
        {"pad": 10_000},  # the JSON part does not come with the head
    ],
)
async def test_other_bodies_have_memory_of_their_own(serving, rows, post, how):
    engine, noting = rows
    async with serving(engine=engine) as site:
        client = await site.connect()
        for number in range(4):
            await ask(client, post, number, **how)
        assert noting.rows == [False] * 4


async def test_a_compressed_body_as_long_as_a_row_is_inflated(serving, rows, post):
    engine, noting = rows
    async with after_some(serving, engine, post) as (_, client):
        noise = np.random.default_rng(1).random(COUNT, np.float32).tobytes()
        sent, _ = request_of(post, 1, "Content-Encoding: gzip", coding=gzip.compress)
        assert (await client.ask(sent)).status == 200
        body = gzip.compress(noise, 0)[: LEAST_BYTES + 2]
        lines = ("Content-Encoding: gzip", "Inference-Header-Content-Length: 2")
        answer = await client.ask(post(TARGET.decode(), body, *lines))
        assert answer.status == 400 and "compressed body" in answer.error
        assert noting.rows[-1] is False


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"declared": LEAST_BYTES - 4}, "input byte size mismatch"),
        ({"declared": LEAST_BYTES + 4}, "expecting 4 additional bytes"),
        ({"inputs": 7}, "inputs"),
        ({"id": 7}, "id"),
    ],
)
async def test_a_mistake_is_told_as_without_a_row(serving, rows, post, fields, text):
    engine, _ = rows
    async with after_some(serving, engine, post) as (_, client):
        sent, _ = request_of(post, 1, **fields)
        answer = await client.ask(sent)
        assert answer.status == 400 and text in answer.error
        engine.capacity.batch_memory._pools.clear()
        without = await client.ask(sent)
        assert without.error == answer.error
        await ask(client, post, 5)


async def test_a_model_that_is_not_there_takes_no_place(serving, rows, post):
    engine, _ = rows
    async with serving(engine=engine) as site:
        sent, _ = request_of(post, 1)
        answer = await site.ask(sent.replace(b"/models/rows/", b"/models/nothing/"))
        assert answer.status == 404
        assert list(engine.capacity.batch_memory._pools) == [TARGET]


async def test_a_port_that_changes_requests_receives_none_in_rows(serving, rows, post):
    engine, noting = rows
    table = HttpRoutes(engine, JsonRules(True, "tokens", 2**20), not_ready_status=400).table
    routes = TableRoutes(table, engine.tracer, FailureLog(logging.getLogger("inferd.test")))
    async with serving(engine=engine, routes=routes) as site:
        client = await site.connect()
        for number in range(3):
            await ask(client, post, number)
        assert noting.rows == [False] * 3


async def test_json_that_ends_in_the_binary_part_is_refused(serving, rows, post):
    engine, _ = rows
    async with serving(engine=engine) as site:
        client = await site.connect()
        body = b"{}" + bytes(LEAST_BYTES)
        answer = await client.ask(post(TARGET.decode(), body, "Inference-Header-Content-Length: 2"))
        assert answer.status == 400 and "inputs" in answer.error
        too_long = f"Inference-Header-Content-Length: {LEAST_BYTES + 3}"
        answer = await client.ask(post(TARGET.decode(), body, too_long))
        assert answer.status == 400


async def test_a_client_that_leaves_halfway_gives_its_row_back(serving, rows, post):
    engine, _ = rows
    async with after_some(serving, engine, post) as (site, client):
        leaving = await site.connect()
        sent, _ = request_of(post, 1)
        await leaving.send(sent[: LEAST_BYTES // 2])
        leaving.reset()
        await ask(client, post, 4)
        site.pass_time(1)
        client.close()
        await site.has_no_connections()
        for _ in range(IDLE_SWEEPS):
            site.pass_time(1)
        assert engine.capacity.batch_memory.block_bytes == 0
        assert await ask(await site.connect(), post, 5)
