"""Scripts of requests, played against a model as its configuration runs it, in simulated time.

A script is one line: `@20` is when, in milliseconds, what follows comes; each word is a request.

    a  b*3  c[5]    a request; one of batch size 3; one with 5 elements
    d^2  e~40       of priority 2; with a timeout of 40 ms
    f+              with the optional input, too
    -f              its client gives up
    (A1 A2 A3)      requests of a sequence called by their letter: it starts and ends
    .x              one that belongs to no sequence

Letters that are small name the sequence by a text, capital ones by their number: A is 65.

What ran is told the same way, a line for each execution: when, on which instance if there are
several, and the ids; `-` is a row of the batch without a request.
"""

import asyncio
import re
from dataclasses import dataclass, field

from fields import with_fields
from simulation import SimulatedExecution, SimulatedTimer, now_ms, passes, simulate

from inferd.config.checks import check_config, check_io
from inferd.config.defaults import normalised
from inferd.config.pbtxt import parse_pbtxt
from inferd.core.request import InferRequest, Sequence
from inferd.engine.engine import Engine
from inferd.engine.loading.scheduling import choose_scheduler
from inferd.engine.serving.served import Served
from inferd.errors import InferdError
from inferd.observe.stats import Counts
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.rest.codec import HTTP_STATUS

PATIENCE_S = 1000
_WORD = re.compile(
    r"(?P<start>\(?)(?P<alone>\.?)(?P<id>\w+)(?:\*(?P<size>\d+))?(?:\[(?P<length>\d+)\])?"
    r"(?:\^(?P<priority>\d+))?(?:~(?P<timeout_ms>\d+))?(?P<more>\+?)(?P<end>\)?)"
)


@dataclass
class Told:
    """What happened: executions, answers and refusals as (when, what), and the counters."""

    runs: list[str] = field(default_factory=list)
    answers: dict[str, float] = field(default_factory=dict)
    errors: dict[str, tuple[float, int, str]] = field(default_factory=dict)
    statistics: object = None
    seen: dict[str, list[object]] = field(default_factory=dict)
    """By request id, "-" for none, the inputs it ran with: name -> datatype, shape, values."""

    def ended(self):
        """When each request was answered, and with which status those that were not."""
        ends = [(ms, id, "") for id, ms in self.answers.items()]
        ends += [(ms, id, f"!{status}") for id, (ms, status, _) in self.errors.items()]
        moments = sorted({ms for ms, _, _ in ends})
        return [
            f"@{ms:g} " + " ".join(f"{id}{mark}" for at, id, mark in sorted(ends) if at == ms)
            for ms in moments
        ]


def play(config, script, takes_ms=10):
    """Return what happens when the requests of `script` meet a model with this configuration.

    `takes_ms` is how long an execution takes, or {id: how long one with that request does}.
    """
    text = f'backend: "simulated" {config}'
    if not re.search(r"\binput \{", text):
        text += ' input { name: "X" data_type: TYPE_INT8 dims: 1 }'
    model = normalised(parse_pbtxt(text, "config.pbtxt"), "m")
    check_config(model)
    check_io(model)
    told = Told()
    simulate(lambda: _serve(model, script, takes_ms, told))
    return told


async def _serve(config, script, takes_ms, told):
    counts = Counts(asyncio.get_running_loop().now_ns)
    instance_count = sum(group.count for group in config.instance_group)

    def execution_of(numbers):
        return _Execution(range(instance_count)[numbers], instance_count, takes_ms, counts, told)

    scheduler = choose_scheduler(config, execution_of, instance_count, timer=SimulatedTimer)
    engine = Engine()
    engine.catalog.add(Served(config, 1, "simulated", scheduler, counts))
    tasks = {}
    for word in script.split():
        if word.startswith("@"):
            await passes(float(word[1:]) - now_ms())
        elif word.startswith("-"):
            tasks[word[1:]].cancel()
        else:
            request = _request(config, word)
            tasks[request.id] = asyncio.create_task(_ask(engine, request, told))
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    [told.statistics] = engine.whole.statistics("m")
    await engine.close(PATIENCE_S)


async def _ask(engine, request, told):
    try:
        await engine.infer(request)
        told.answers[request.id] = now_ms()
    except InferdError as error:
        told.errors[request.id] = now_ms(), HTTP_STATUS[error.code], error.message


def _request(config, word):
    found = _WORD.fullmatch(word)
    size, length = int(found["size"] or 1), int(found["length"] or 1)
    inputs = []
    for one in config.input:
        if found["more"] or not one.optional:
            shape = (size,) * (config.max_batch_size > 0) + (length,)
            inputs.append(Tensor(one.name, DataType.INT8, shape, bytes(size * length)))
    request = with_fields(
        InferRequest("m", id=found["id"], inputs=inputs),
        priority=int(found["priority"] or 0),
        timeout_us=1000 * int(found["timeout_ms"] or 0),
    )
    if config.sequence_batching is not None and not found["alone"]:
        name = found["id"].rstrip("0123456789")
        is_text = name.islower()
        id = name if is_text else ord(name)
        request.sequence = Sequence(id, start=bool(found["start"]), end=bool(found["end"]))
    return request


class _Execution(SimulatedExecution):
    """Tells what runs where, and counts it."""

    def __init__(self, numbers, instance_count, takes_ms, counts, told):
        super().__init__(len(numbers), self._longest_ms)
        self._free = list(numbers)
        self._is_one = instance_count == 1
        self._takes = takes_ms
        self._counts = counts
        self._told = told
        self._room = asyncio.Semaphore(len(numbers))

    async def run(self, requests, policy=None):
        requests[0].queued_ns = self._counts.clock()
        async with self._room:
            ended = asyncio.get_running_loop().create_future()
            self.begin(requests, ended.set_result)
            return await ended

    def start(self, requests, finish, wanted=None):
        number = self._free.pop(0)
        ids = [self._see(request) for request in requests]
        place = "" if self._is_one else f"#{number} "
        self._told.runs.append(f"@{now_ms():g} {place}{' '.join(ids)}")

        def finished(outcome):
            self._free.append(number)
            requests[0].answered_ns = requests[0].ended_ns
            if len(requests) > 1:
                self._counts.add_shared_execution(requests[0], requests)
            finish(outcome)

        super().start(requests, finished)

    def _longest_ms(self, requests):
        if isinstance(self._takes, dict):
            return max(self._takes[request.id] for request in requests)
        return self._takes

    def _see(self, request):
        inputs = {
            one.name: (one.datatype.value, one.shape, one.numpy().ravel().tolist())
            for one in request.inputs
        }
        _, _, [is_there] = inputs.get("READY", ("", (), [True]))
        self._told.seen.setdefault(request.id if is_there else "-", inputs)
        return request.id if is_there else "-"
