"""Sequences while the process that has them is replaced: they stay there until they end."""

import asyncio
import random

import pytest
from models import STATE_CONFIG, SUMS, SUMS_CONFIG
from test_scheduler import values

from inferd.core.processes import Processes
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.forward.owner import owner_of, sequence_key

PATIENT = SUMS_CONFIG.replace("16 }", "64 } max_sequence_idle_microseconds: 3600000000")
MODELS = {"worker": (PATIENT, SUMS), "inline": (STATE_CONFIG, None)}
IDS = [id for id in range(1, 200) if owner_of(sequence_key("m", id), (0, 1)) == 1]
"""Sequences of model "m" that process 1 of two owns."""


class Replaced:
    """Two processes, and a third that takes the place of process 1, the `old` one."""

    def __init__(self, all_):
        self.all = all_
        self.other, self.old = all_.engines
        self.path = f"{all_.paths[1]}.new"
        for number, one in enumerate(all_.processes):
            one.path = all_.paths[number]
        self.processes = Processes(1, 2, self.path)
        self.new = Engine(processes=self.processes)

    async def begin(self, until):
        """Start the new process, and have it take over."""
        await self.new.load_all([self.all.root])
        await self.new.exchange.open(self.path)
        self.processes.update(self.all.paths)
        await until(lambda: self.new.exchange.peers.link(1))
        self.all.paths[1] = self.path
        self.all.engines.append(self.new)
        self.all.processes.append(self.processes)
        self.all.tell(0, 1)
        await until(lambda: self.old.exchange.peers.link(1))

    async def end(self, until):
        """Have the old process end, which keeps nothing any more."""
        assert self.old.exchange.owned.sequence_count == 0
        await self.old.exchange.finish(3600.0, is_replaced=True)
        await until(lambda: not self.new.exchange.peers.are_two)


def step(ask, id, value, *, start=False, end=False):
    return ask("m", (id, start, end), **value)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("by_stream", [False, True])
def test_a_sequence_goes_on_where_it_lives_and_new_ones_live_in_the_new_process(
    together, ask, until, kind, by_stream
):
    name = "IN" if kind == "worker" else "INPUT0"
    value = {name: [3] if kind == "worker" else [[3]]}

    async def asked(engine, id, **flags):
        request = step(ask, id, value, **flags)
        if by_stream:
            [answer] = [one async for one in engine.stream(request)]
            return values(answer)
        return values(await engine.infer(request))

    async def go():
        async with together(2, m=MODELS[kind]) as all_:
            both = Replaced(all_)
            for id in IDS[:3]:
                await asked(both.other, id, start=True)
            await both.begin(until)
            engines = both.other, both.old, both.new
            found = [await asked(one, id) for id in IDS[:3] for one in engines]
            lives = [one.exchange.owned.sequence_count for one in engines]
            with pytest.raises(InvalidRequest, match="must specify the START flag"):
                await asked(both.new, IDS[9])
            with pytest.raises(InvalidRequest, match="must specify the START flag"):
                await asked(both.other, IDS[9])
            for id, one in zip(IDS[3:6], engines, strict=True):
                await asked(one, id, start=True)
            begun = [await asked(one, id) for id in IDS[3:6] for one in engines]
            new = [one.exchange.owned.sequence_count for one in engines]
            for id in IDS[:3]:
                await asked(both.new, id, end=True)
            await both.end(until)
            last = [await asked(one, id) for id in IDS[3:6] for one in (both.other, both.new)]
            return found, lives, begun, new, last

    found, lives, begun, new, last = asyncio.run(go())
    assert (lives, new) == ([0, 3, 0], [0, 3, 3])
    if kind == "worker":
        assert found == [[6], [9], [12]] * 3
        assert begun == [[6], [9], [12]] * 3
        assert last == [[15], [18]] * 3


def test_one_that_begins_anew_where_it_lives_is_not_in_two_places(together, ask, until):
    async def go():
        async with together(2, m=MODELS["worker"]) as all_:
            both = Replaced(all_)
            await both.other.infer(step(ask, IDS[0], {"IN": [3]}, start=True))
            await both.begin(until)
            sums = []
            for start, one in ((True, both.new), (False, both.other), (False, both.old)):
                answer = await one.infer(step(ask, IDS[0], {"IN": [1]}, start=start))
                sums += values(answer)
            lives = [one.exchange.owned.sequence_count for one in (both.old, both.new)]
            return sums, lives

    assert asyncio.run(go()) == ([1, 2, 3], [1, 0])


@pytest.mark.parametrize("seed", range(5))
def test_whenever_the_process_is_replaced_every_sum_is_right(together, ask, until, seed):
    """Clients do not wait for one answer before they send the next request of a sequence."""
    drawn = random.Random(seed)

    async def client(both, id, is_over):
        """Run sequences of that id until `is_over`; return how many were as they should be."""
        count = 0
        while not is_over.is_set():
            engine = drawn.choice([both.other, both.all.engines[-1]])
            numbers = [drawn.randint(1, 9) for _ in range(drawn.randint(2, 6))]
            last = len(numbers) - 1
            asked = [
                asyncio.create_task(
                    engine.infer(step(ask, id, {"IN": [n]}, start=not at, end=at == last))
                )
                for at, n in enumerate(numbers)
            ]
            answers = [values(await one)[0] for one in asked]
            assert answers == [sum(numbers[: at + 1]) for at in range(len(numbers))]
            count += 1
        return count

    async def go():
        async with together(2, m=MODELS["worker"]) as all_:
            both, is_over = Replaced(all_), asyncio.Event()
            clients = [asyncio.create_task(client(both, id, is_over)) for id in IDS[:12]]
            await both.begin(until)
            await until(lambda: both.old.exchange.owned.sequence_count == 0)
            await both.end(until)
            is_over.set()
            return await asyncio.gather(*clients)

    assert all(asyncio.run(go()))
