"""Running ensembles: what the steps are asked, when, and what becomes of their errors."""

import asyncio
import functools
from contextlib import aclosing

import numpy as np
import pytest
from fields import with_fields

from inferd.config.model import (
    EnsembleScheduling,
    EnsembleStep,
    ModelConfig,
    ModelInput,
    ModelOutput,
)
from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import BackendFailed, InvalidRequest, Unavailable
from inferd.observe.stats import Counts
from inferd.schedulers import ensemble as ensemble_module
from inferd.schedulers.ensemble import EnsembleScheduler
from inferd.schedulers.ensemble_parts.plan import EnsemblePlan
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

PATIENCE_S = 30
INT32 = DataType.INT32


class Models:
    """The server's models, each a function from inputs by name to outputs by name.

    One that has a gate waits for it. A decoupled one returns a list of outputs or errors.
    """

    def __init__(self, **functions):
        self.functions = functions
        self.gates = {}
        self.asked = []
        self.given_up = []

    async def infer(self, request):
        self.asked.append(request)
        try:
            if request.model in self.gates:
                await self.gates[request.model].wait()
        except asyncio.CancelledError:
            self.given_up.append(request.model)
            raise
        return self._answer(request, self._outputs(request))

    async def stream(self, request):
        self.asked.append(request)
        try:
            outputs = self._outputs(request)
            for index, one in enumerate(outputs):
                if isinstance(one, Exception):
                    raise one
                yield self._answer(request, one, is_final=index == len(outputs) - 1)
        finally:
            self.given_up.append(request.model)

    def names(self):
        return [request.model for request in self.asked]

    def _outputs(self, request):
        return self.functions[request.model](**{t.name: t.numpy() for t in request.inputs})

    def _answer(self, request, outputs, *, is_final=True):
        tensors = [Tensor.from_numpy(name, array, INT32) for name, array in outputs.items()]
        return InferResponse(request.model, "1", request.id, tensors, final=is_final)


def plus(number):
    return lambda i: {"O": i + np.int32(number)}


def add(a, b):
    return {"O": a + b}


def each(i):
    return [{"O": i[n : n + 1]} for n in range(len(i))]


def fail(**_):
    msg = "no luck"
    raise BackendFailed(msg)


def model(name, takes=("i",), gives=("O",), *, optional=(), decoupled=False):
    return ModelConfig(
        name,
        input=tuple(ModelInput(one, INT32, (-1,), optional=one in optional) for one in takes),
        output=tuple(ModelOutput(one, INT32, (-1,)) for one in gives),
        decoupled=decoupled,
    )


class Ticking:
    """A clock that the models move on."""

    def __init__(self):
        self.now_ns = 1  # 0 would be no time at all

    def __call__(self):
        return self.now_ns


def ensemble(models, *steps, e=None, clock=None, inflight=0, with_sequences=()):
    """Return a scheduler; a step is its model's config, what it reads and what it writes.

    Its `clock` stands still if none is given: steps that take long together make way for others.
    """
    e = e or model("e", ("X",), ("Y",))
    called = []
    for config, reads, writes in steps:
        inputs = [one.name for one in config.input]
        outputs = [one.name for one in config.output]
        maps = dict(zip(inputs, reads, strict=False)), dict(zip(outputs, writes, strict=False))
        called.append(EnsembleStep(config.name, -1, *maps))
    config = ModelConfig(
        "e",
        input=e.input,
        output=e.output,
        ensemble_scheduling=EnsembleScheduling(tuple(called), inflight),
    )
    plan = EnsemblePlan(config, [config for config, _, _ in steps])
    return EnsembleScheduler(plan, models, Counts(clock or Ticking()), with_sequences)


def ask(*names, wanted=(), **said):
    values = {name: np.array([1, 2, 3], np.int32) for name in names or ("X",)}
    inputs = [Tensor.from_numpy(name, array, INT32) for name, array in values.items()]
    return with_fields(
        InferRequest("e", "", "an id", inputs, [WantedOutput(n) for n in wanted]), **said
    )


def values(response):
    return {tensor.name: tensor.numpy().tolist() for tensor in response.outputs}


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


A, B, C = model("a"), model("b"), model("c")
ADD = model("add", ("a", "b"))
EACH = model("each", decoupled=True)


# --- steps that answer once ---


@run
async def test_what_a_step_writes_the_next_one_reads():
    models = Models(a=plus(1), b=plus(10))
    scheduler = ensemble(models, (B, "t", "Y"), (A, "X", "t"))
    assert values(await scheduler.run(ask())) == {"Y": [12, 13, 14]}
    assert models.names() == ["a", "b"]


@run
async def test_tensors_are_handed_on_and_not_copied():
    class Same(Models):
        async def infer(self, request):
            self.asked.append(request)
            [given] = request.inputs
            return InferResponse("", "", "", [Tensor("O", INT32, given.shape, given.data)])

    models = Same()
    request = ask()
    answer = await ensemble(models, (A, "X", "t"), (B, "t", "Y")).run(request)
    assert [one.inputs[0].data is request.inputs[0].data for one in models.asked] == [True, True]
    assert answer.outputs[0].data is request.inputs[0].data


@run
async def test_a_step_is_told_what_the_client_said():
    models = Models(a=plus(1))
    said = {
        "parameters": {"key": "value"},
        "priority": 2,
        "timeout_us": 5,
        "sequence": Sequence(7, start=True),
        "arrived_ns": 9,
    }
    await ensemble(models, (A, "X", "Y")).run(ask(**said))
    [told] = models.asked
    assert (told.id, told.model, told.version) == ("an id", "a", "")
    assert {name: getattr(told, name) for name in said} == said
    assert told.outputs == []  # all there are


@run
async def test_of_a_steps_outputs_those_are_wanted_that_have_a_place():
    splits = model("splits", ("i",), ("P", "O", "Q"))
    models = Models(splits=lambda i: {"P": i, "O": i, "Q": i})
    read = {"i": "X"}, {"O": "Y", "P": "Z"}
    e = model("e", ("X",), ("Y", "Z"))
    config = ModelConfig(
        "e",
        input=e.input,
        output=e.output,
        ensemble_scheduling=EnsembleScheduling((EnsembleStep("splits", -1, *read),)),
    )
    scheduler = EnsembleScheduler(EnsemblePlan(config, [splits]), models, Counts(Ticking()))
    assert values(await scheduler.run(ask())) == {"Y": [1, 2, 3], "Z": [1, 2, 3]}
    [told] = models.asked
    assert [one.name for one in told.outputs] == ["P", "O"]  # in the model's order


@run
async def test_steps_run_side_by_side_and_the_next_starts_when_its_inputs_are_there():
    models = Models(a=plus(1), b=plus(2), c=plus(3), add=add)
    models.gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "t"), (B, "X", "u"), (C, "u", "v"), (ADD, "tv", "Y"))
    task = asyncio.create_task(scheduler.run(ask()))
    await settled()
    assert models.names() == ["a", "b"]
    models.gates["b"].set()
    await settled()
    assert models.names() == ["a", "b", "c"]  # though "a" is still at work
    models.gates["a"].set()
    assert values(await task) == {"Y": [8, 10, 12]}


@run
async def test_steps_nobody_needs_do_not_run():
    models = Models(a=plus(1), b=plus(2))
    scheduler = ensemble(models, (A, "X", "Y"), (B, "X", "Z"), e=model("e", ("X",), ("Y", "Z")))
    assert values(await scheduler.run(ask(wanted=["Z"]))) == {"Z": [3, 4, 5]}
    assert models.names() == ["b"]
    assert values(await scheduler.run(ask())) == {"Y": [2, 3, 4], "Z": [3, 4, 5]}


@run
async def test_an_optional_input_that_is_missing_is_missing_to_the_step():
    both = model("both", ("i", "j"), ("O", "P"), optional=("j",))
    models = Models(both=lambda i, j=None: {"O": i} | ({} if j is None else {"P": j}))
    scheduler = ensemble(
        models, (both, "XW", "YZ"), e=model("e", ("X", "W"), ("Y", "Z"), optional=("W",))
    )
    assert values(await scheduler.run(ask("X"))) == {"Y": [1, 2, 3]}
    assert values(await scheduler.run(ask("X", "W"))) == {"Y": [1, 2, 3], "Z": [1, 2, 3]}
    assert [[one.name for one in asked.outputs] for asked in models.asked] == [[], []]


@run
async def test_inputs_and_outputs_are_reshaped():
    models = Models(a=plus(1))
    e = ModelConfig(
        "e",
        input=(ModelInput("X", INT32, (3,), reshape=(3, 1)),),
        output=(ModelOutput("Y", INT32, (3,), reshape=(3, 1)),),
    )
    square = ModelConfig(
        "a", input=(ModelInput("i", INT32, (3, 1)),), output=(ModelOutput("O", INT32, (3, 1)),)
    )
    answer = await ensemble(models, (square, "X", "Y"), e=e).run(ask())
    assert models.asked[0].inputs[0].shape == (3, 1)
    assert answer.outputs[0].shape == (3,)


@run
async def test_an_output_that_its_reshape_does_not_fit_is_an_error():
    e = ModelConfig(
        "e",
        input=(ModelInput("X", INT32, (-1,)),),
        output=(ModelOutput("Y", INT32, (1, 2), reshape=(2,)),),
    )
    scheduler = ensemble(Models(a=plus(1)), (A, "X", "Y"), e=e)
    with pytest.raises(BackendFailed) as caught:
        await scheduler.run(ask())
    assert caught.value.message == (
        "ensemble 'e': output 'Y' is [3], which its reshape from [2] to [1, 2] does not fit"
    )


# --- errors ---


@run
async def test_an_error_names_the_step_and_its_tensors():
    models = Models(a=plus(1), b=fail)
    with pytest.raises(BackendFailed) as caught:
        await ensemble(models, (A, "X", "t"), (B, "t", "Y")).run(ask())
    assert caught.value.message == (
        "in ensemble 'e', no luck; step 1 (model 'b'): input 'i' is tensor 't', INT32 [3]"
    )


@run
async def test_an_error_of_a_step_that_was_given_nothing_names_no_tensors():
    models = Models(a=lambda i: {}, b=fail)
    with pytest.raises(BackendFailed) as caught:
        await ensemble(models, (A, "X", "t"), (B, "t", "Y")).run(ask())
    assert caught.value.message == "in ensemble 'e', no luck; step 1 (model 'b')"


@run
async def test_of_many_inputs_some_are_named():
    names = "ABCDEFG"
    models = Models(wide=fail)
    scheduler = ensemble(models, (model("wide", names), names, "Y"), e=model("e", names, ("Y",)))
    with pytest.raises(BackendFailed, match=r"input 'D' is tensor 'D', INT32 \[3\]; and 3 more"):
        await scheduler.run(ask(*names))


@run
async def test_an_error_keeps_its_kind():
    def refuse(**_):
        msg = "too long"
        raise InvalidRequest(msg)

    with pytest.raises(InvalidRequest, match=r"too long; step 0 \(model 'a'\)"):
        await ensemble(Models(a=refuse), (A, "X", "Y")).run(ask())


@run
async def test_when_a_step_fails_those_beside_it_are_given_up():
    models = Models(a=plus(1), b=fail, add=add)
    models.gates = {"a": asyncio.Event()}
    with pytest.raises(BackendFailed, match="no luck"):
        await ensemble(models, (A, "X", "t"), (B, "X", "u"), (ADD, "tu", "Y")).run(ask())
    assert models.given_up == ["a"]
    assert models.names() == ["a", "b"]


@run
async def test_a_client_that_leaves_ends_its_steps():
    models = Models(a=plus(1), b=plus(1), add=add)
    models.gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "t"), (B, "X", "u"), (ADD, "tu", "Y"))
    task = asyncio.create_task(scheduler.run(ask()))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert models.given_up == ["a", "b"]


# --- sequences ---


class Held(Models):
    """Models of which `slow` lets a request go on when it is released; `came` are those of `b`."""

    slow = "a"

    def __init__(self, **functions):
        super().__init__(**functions)
        self.held = {}

    async def infer(self, request):
        if request.model == self.slow:
            self.held[request.id] = released = asyncio.get_running_loop().create_future()
            await released
        return await super().infer(request)

    def release(self, id):
        self.held[id].set_result(None)

    @property
    def arrived(self):
        return "".join(request.id for request in self.asked if request.model == "b")


def chain_with_sequences(models):
    return ensemble(models, (A, "X", "t"), (B, "t", "Y"), with_sequences=[1])


async def sent(scheduler, ids, **said):
    """Send a request for each of `ids`; return their tasks, when all are at the first step."""
    said.setdefault("sequence", Sequence(7))
    requests = [ask(**said) for _ in ids]
    for request, id in zip(requests, ids, strict=True):
        request.id = id
    tasks = [asyncio.create_task(scheduler.run(request)) for request in requests]
    await settled()
    return tasks


@run
async def test_the_requests_of_a_sequence_come_to_its_step_in_the_order_they_came_in():
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    tasks = await sent(scheduler, "123")
    for id, arrived in ("3", ""), ("2", ""), ("1", "123"):
        models.release(id)
        await settled()
        assert models.arrived == arrived
    await asyncio.gather(*tasks)
    assert not scheduler.runner.order


@run
async def test_those_of_other_sequences_and_of_none_wait_for_nobody():
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    first = await sent(scheduler, "1")
    others = await sent(scheduler, "2", sequence=Sequence(8))
    others += await sent(scheduler, "3", sequence=Sequence(0))  # names none
    others += await sent(scheduler, "4", sequence=None)
    for id in "234":
        models.release(id)
    await asyncio.gather(*others)
    models.release("1")
    await asyncio.gather(*first)
    assert models.arrived == "2341"


@run
async def test_what_a_model_sends_waits_for_nobody_and_its_steps_know_that():
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    first = await sent(scheduler, "1")
    nested = await sent(scheduler, "2", callers=("a",))  # for which "1" may wait
    models.release("2")
    await asyncio.gather(*nested)
    assert [request.callers for request in models.asked] == [("a",), ("a",)]
    models.release("1")
    await asyncio.gather(*first)


@run
async def test_one_that_fails_before_the_step_lets_the_next_pass():
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    first, second = await sent(scheduler, "12")
    models.release("2")
    models.held["1"].set_exception(BackendFailed("no luck"))
    with pytest.raises(BackendFailed, match="no luck"):
        await first
    await second
    assert models.arrived == "2"
    assert not scheduler.runner.order


@run
async def test_one_that_fails_in_the_step_lets_the_next_pass():
    models = Held(a=plus(1), b=fail)
    scheduler = chain_with_sequences(models)
    tasks = await sent(scheduler, "12")
    models.release("2")
    models.release("1")
    assert len(await asyncio.gather(*tasks, return_exceptions=True)) == 2
    assert models.arrived == "12"
    assert not scheduler.runner.order


@pytest.mark.parametrize("left", ["1", "2", "12", "21"])
@run
async def test_those_whose_clients_leave_let_the_next_pass(left):
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    tasks = await sent(scheduler, "123")
    models.release("2")
    models.release("3")
    await settled()  # now both wait at the turnstile
    for id in left:
        tasks[int(id) - 1].cancel()
    await settled()
    if "1" not in left:
        models.release("1")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert models.arrived == "".join(id for id in "123" if id not in left)
    assert not scheduler.runner.order


@run
async def test_one_that_leaves_when_its_turn_has_just_come_lets_the_next_pass():
    models = Held(a=plus(1), b=plus(2))
    scheduler = chain_with_sequences(models)
    first, second, third = await sent(scheduler, "123")
    models.release("2")
    models.release("3")
    await settled()
    models.release("1")
    while models.arrived != "1":  # noqa: ASYNC110  each turn counts
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, third)
    assert models.arrived == "13"
    assert not scheduler.runner.order


@run
async def test_nobody_waits_for_one_that_does_not_need_the_step():
    models = Held(a=plus(1), b=plus(2))
    e = model("e", ("X",), ("Y", "Z"))
    scheduler = ensemble(models, (A, "X", "Z"), (B, "X", "Y"), e=e, with_sequences=[1])
    first = await sent(scheduler, "1", wanted=["Z"])
    second = await sent(scheduler, "2", wanted=["Y"])
    await asyncio.gather(*second)
    models.release("1")
    await asyncio.gather(*first)
    assert models.arrived == "2"


@run
async def test_each_step_that_knows_sequences_gets_them_in_order():
    models = Held(a=plus(1), b=plus(2), c=plus(3))
    models.slow = "c"
    steps = (B, "X", "t"), (C, "t", "u"), (B, "u", "Y")
    scheduler = ensemble(models, *steps, with_sequences=[0, 2])
    tasks = await sent(scheduler, "12")
    models.release("2")
    await settled()
    assert models.arrived == "12"
    models.release("1")
    await asyncio.gather(*tasks)
    assert models.arrived == "1212"


@run
async def test_an_ensemble_that_follows_another_keeps_the_order_of_its_sequences():
    models = Held(a=plus(1), b=plus(2), c=plus(3))
    before = ensemble(models, (A, "X", "t"), (C, "X", "u"), (B, "t", "Y"), with_sequences=[2])
    scheduler = chain_with_sequences(models)  # in which the step has another number
    scheduler.follow(before)
    tasks = [*await sent(before, "1"), *await sent(scheduler, "2")]
    models.release("2")
    await settled()
    assert models.arrived == ""
    models.release("1")
    await asyncio.gather(*tasks)
    assert models.arrived == "12"
    assert not scheduler.runner.order


@run
async def test_a_decoupled_step_gets_the_requests_of_a_sequence_in_order_too():
    models = Held(a=plus(1), each=each)
    scheduler = ensemble(models, (A, "X", "t"), (EACH, "t", "Y"), with_sequences=[1])
    requests = [ask(sequence=Sequence(7)) for _ in "12"]
    for request, id in zip(requests, "12", strict=True):
        request.id = id
    tasks = [asyncio.create_task(all_of(scheduler, request)) for request in requests]
    await settled()
    models.release("2")
    await settled()
    assert "each" not in models.names()
    models.release("1")
    await asyncio.gather(*tasks)
    assert [request.id for request in models.asked if request.model == "each"] == ["1", "2"]
    assert not scheduler.runner.order


# --- times, limits and the end ---


@run
async def test_a_request_takes_from_its_first_step_to_its_last(clock):
    def later(**_):
        clock.now_ns += 5
        return {"O": np.array([1], np.int32)}

    clock.now_ns = 100
    request = ask()
    await ensemble(Models(a=later), (A, "X", "t"), (A, "t", "Y"), clock=clock).run(request)
    assert (request.started_ns, request.ended_ns) == (100, 110)


@run
async def test_more_requests_than_may_run_are_refused(monkeypatch):
    monkeypatch.setattr(ensemble_module, "MAX_RUNNING", 1)
    models = Models(a=plus(1))
    models.gates = {"a": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "Y"))
    task = asyncio.create_task(scheduler.run(ask()))
    await settled()
    with pytest.raises(Unavailable, match="1 requests to ensemble 'e' run already"):
        await scheduler.run(ask())
    models.gates["a"].set()
    await task
    assert scheduler.pending_count == 0


@run
async def test_closing_waits_for_what_runs_and_takes_nothing_new():
    models = Models(a=plus(1))
    models.gates = {"a": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "Y"))
    task = asyncio.create_task(scheduler.run(ask()))
    await settled()
    closing = asyncio.create_task(scheduler.close(PATIENCE_S))
    await settled()
    assert not closing.done()
    with pytest.raises(Unavailable, match="unloaded"):
        await scheduler.run(ask())
    models.gates["a"].set()
    await closing
    assert task.done()
    await scheduler.close(PATIENCE_S)


@run
async def test_closing_does_not_wait_for_ever():
    models = Models(a=plus(1))
    models.gates = {"a": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "Y"))
    task = asyncio.create_task(scheduler.run(ask()))
    await settled()
    await scheduler.close(0)
    assert not task.done()
    models.gates["a"].set()
    await task


# --- steps that answer any number of times ---


async def all_of(scheduler, request=None):
    async with aclosing(scheduler.stream(request or ask())) as answers:
        return [(values(answer), answer.final) async for answer in answers]


@run
async def test_each_answer_of_a_decoupled_step_goes_through_the_steps_after_it():
    models = Models(a=plus(10), each=each, b=plus(100))
    scheduler = ensemble(models, (A, "X", "t"), (EACH, "t", "u"), (B, "u", "Y"))
    assert await all_of(scheduler) == [
        ({"Y": [111]}, False),
        ({"Y": [112]}, False),
        ({"Y": [113]}, True),
    ]
    assert models.names() == ["a", "each", "b", "b", "b"]


@run
async def test_what_came_before_a_decoupled_step_is_there_for_each_of_its_answers():
    models = Models(a=plus(10), each=each, add=add)
    scheduler = ensemble(models, (A, "X", "t"), (EACH, "X", "u"), (ADD, "tu", "Y"))
    assert [found for found, _ in await all_of(scheduler)] == [
        {"Y": [12, 13, 14]},
        {"Y": [13, 14, 15]},
        {"Y": [14, 15, 16]},
    ]
    assert models.names().count("a") == 1


@run
async def test_no_answer_of_a_decoupled_step_is_none_of_the_ensemble():
    assert await all_of(ensemble(Models(each=lambda **_: []), (EACH, "X", "Y"))) == []


@run
async def test_an_answer_without_outputs_is_one_of_the_ensemble_and_runs_no_more_steps():
    models = Models(a=plus(10), each=lambda i: [{"O": i}, {}, {"O": i}, {}], b=plus(100))
    b = (B, "u", "Y")
    whole = [({"Y": [101, 102, 103]}, False), ({}, False), ({"Y": [101, 102, 103]}, False)]
    assert await all_of(ensemble(models, (EACH, "X", "u"), b)) == [*whole, ({}, True)]
    assert models.names() == ["each", "b", "b"]
    two = ensemble(  # with an output of an earlier step
        models, (A, "X", "Z"), (EACH, "X", "Y"), e=model("e", ("X",), ("Y", "Z"))
    )
    with_outputs = {"Y": [1, 2, 3], "Z": [11, 12, 13]}
    assert [found for found, _ in await all_of(two)] == [with_outputs, {}, with_outputs, {}]


@run
async def test_an_answer_without_outputs_keeps_its_parameters():
    class Telling(Models):
        async def stream(self, request):
            yield InferResponse(request.model, "1", request.id, parameters={"n": 3})

    scheduler = ensemble(Telling(), (EACH, "X", "t"), (B, "t", "Y"))
    [answer] = [one async for one in scheduler.stream(ask())]
    assert (answer.model, answer.id, answer.parameters) == ("e", "an id", {"n": 3})


@run
async def test_an_answer_without_outputs_starts_no_decoupled_step():
    twice = model("twice", decoupled=True)
    models = Models(each=lambda i: [{}, {"O": i}, {}], twice=lambda i: [{"O": i}, {}])
    scheduler = ensemble(models, (EACH, "X", "t"), (twice, "t", "Y"))
    assert await all_of(scheduler) == [
        ({}, False),
        ({"Y": [1, 2, 3]}, False),
        ({}, False),
        ({}, True),
    ]
    assert models.names() == ["each", "twice"]


@run
async def test_decoupled_steps_one_after_the_other_multiply():
    twice = model("twice", decoupled=True)
    models = Models(each=each, twice=lambda i: [{"O": i}, {"O": -i}])
    scheduler = ensemble(models, (EACH, "X", "t"), (twice, "t", "Y"))
    assert await all_of(scheduler) == [
        ({"Y": [1]}, False),
        ({"Y": [-1]}, False),
        ({"Y": [2]}, False),
        ({"Y": [-2]}, False),
        ({"Y": [3]}, False),
        ({"Y": [-3]}, True),
    ]


@run
async def test_answers_are_worked_on_side_by_side_as_far_as_allowed():
    models = Models(each=each, b=plus(1))
    models.gates = {"b": asyncio.Event()}
    scheduler = ensemble(models, (EACH, "X", "t"), (B, "t", "Y"), inflight=2)
    task = asyncio.create_task(all_of(scheduler))
    await settled()
    assert models.names() == ["each", "b", "b"]
    models.gates["b"].set()
    assert [found for found, _ in await task] == [{"Y": [2]}, {"Y": [3]}, {"Y": [4]}]


@run
async def test_so_many_requests_are_in_each_step_at_once_those_of_all_runs_together():
    models = Models(a=plus(1), b=plus(1))
    models.gates = {"b": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "t"), (B, "t", "Y"), inflight=2)
    tasks = [asyncio.create_task(scheduler.run(ask())) for _ in range(4)]
    await settled()
    assert sorted(models.names()) == ["a"] * 4 + ["b"] * 2
    tasks[0].cancel()  # who leaves makes room
    await settled()
    assert models.names()[6:] == ["b"]
    models.gates["b"].set()
    assert [values(await task) for task in tasks[1:]] == [{"Y": [3, 4, 5]}] * 3


@run
async def test_without_a_limit_all_are_in_a_step_at_once():
    models = Models(a=plus(1))
    models.gates = {"a": asyncio.Event()}
    scheduler = ensemble(models, (A, "X", "Y"))
    tasks = [asyncio.create_task(scheduler.run(ask())) for _ in range(40)]
    await settled()
    assert len(models.asked) == 40
    models.gates["a"].set()
    await asyncio.gather(*tasks)


def said_of(id, *, start=False, end=False):
    return {"sequence_id": id, "sequence_start": start, "sequence_end": end}


@pytest.mark.parametrize(
    ("sequence", "said"),
    [
        (None, said_of(0)),
        (Sequence(7, start=True), said_of(7, start=True)),
        (Sequence("s", end=True), said_of("s", end=True)),
        (Sequence(2**64 - 1), said_of(-1)),
    ],
)
@run
async def test_an_answer_names_the_sequence_of_its_request(sequence, said):
    scheduler = ensemble(Models(a=plus(1)), (A, "X", "Y"))
    assert (await scheduler.run(ask(sequence=sequence))).parameters == said


@run
async def test_the_sequence_that_a_steps_answer_names_is_that_of_what_follows():
    class Renaming(Models):
        def _answer(self, request, outputs, *, is_final=True):
            answer = super()._answer(request, outputs, is_final=is_final)
            if request.model == "a":
                answer.parameters = {"sequence_id": 9, "sequence_end": True}
            return answer

    models = Renaming(a=plus(1), b=plus(1))
    scheduler = ensemble(models, (A, "X", "t"), (B, "t", "Y"))
    answer = await scheduler.run(ask(sequence=Sequence(7, start=True)))
    assert answer.parameters == said_of(9, end=True)
    assert models.asked[1].sequence == Sequence(9, end=True)


@run
async def test_an_error_of_a_decoupled_step_comes_after_its_answers():
    def one(i):
        return [{"O": i}, BackendFailed("no luck")]

    models = Models(each=one, b=plus(1))
    scheduler = ensemble(models, (EACH, "X", "t"), (B, "t", "Y"))
    async with aclosing(scheduler.stream(ask())) as answers:
        assert values(await anext(answers)) == {"Y": [2, 3, 4]}
        with pytest.raises(BackendFailed, match=r"no luck; step 0 \(model 'each'\): input 'i' is"):
            await anext(answers)


@run
async def test_an_error_after_a_decoupled_step_ends_it():
    models = Models(each=each, b=fail)
    with pytest.raises(BackendFailed, match=r"no luck; step 1 \(model 'b'\)"):
        await all_of(ensemble(models, (EACH, "X", "t"), (B, "t", "Y")))
    assert models.given_up == ["each"]


@run
async def test_who_leaves_a_stream_ends_its_steps():
    models = Models(each=each, b=plus(1))
    scheduler = ensemble(models, (EACH, "X", "t"), (B, "t", "Y"), inflight=1)
    request = ask()
    async with aclosing(scheduler.stream(request)) as answers:
        await anext(answers)
    assert models.given_up == ["each"]
    assert models.names() == ["each", "b"]
    assert request.ended_ns
    await scheduler.close(PATIENCE_S)


# --- timeouts ---


def test_a_step_may_wait_for_what_the_steps_before_have_left_of_the_timeout():
    clock = Ticking()

    def slow(i):
        clock.now_ns += 300_000
        return plus(1)(i)

    models = Models(a=slow, b=slow, c=slow)
    scheduler = ensemble(
        models,
        (model("a"), ("X",), ("P",)),
        (model("b"), ("P",), ("Q",)),
        (model("c"), ("Q",), ("Y",)),
        clock=clock,
    )
    request = InferRequest("e", inputs=[Tensor.from_numpy("X", np.int32([1]), INT32)])
    request.timeout_us = 1000
    asyncio.run(scheduler.run(request))
    assert [asked.timeout_us for asked in models.asked] == [1000, 700, 400]


def test_no_step_begins_when_the_timeout_has_passed():
    clock = Ticking()

    def slow(i):
        clock.now_ns += 1_000_000
        return plus(1)(i)

    models = Models(a=slow, b=slow)
    scheduler = ensemble(
        models, (model("a"), ("X",), ("P",)), (model("b"), ("P",), ("Y",)), clock=clock
    )
    request = InferRequest("e", inputs=[Tensor.from_numpy("X", np.int32([1]), INT32)])
    request.timeout_us = 1000
    with pytest.raises(Unavailable, match=r"step 1.*timeout of 1000 microseconds has passed"):
        asyncio.run(scheduler.run(request))
    assert models.names() == ["a"]


def test_others_have_their_turn_between_steps_that_take_long_together():
    clock = Ticking()
    seen = []

    def slow(i):
        clock.now_ns += 600_000
        seen.append("step")
        return plus(1)(i)

    models = Models(a=slow, b=slow, c=slow)
    scheduler = ensemble(
        models,
        (model("a"), ("X",), ("P",)),
        (model("b"), ("P",), ("Q",)),
        (model("c"), ("Q",), ("Y",)),
        clock=clock,
    )

    async def go():
        asyncio.get_running_loop().call_soon(seen.append, "another")
        await scheduler.run(
            InferRequest("e", inputs=[Tensor.from_numpy("X", np.int32([1]), INT32)])
        )

    asyncio.run(go())
    assert seen == ["step", "step", "another", "step"]


# --- steps that wait for nothing ---


class PromptModels(Models):
    """Models that answer at once, but those that `wait`."""

    def __init__(self, *wait, **functions):
        super().__init__(**functions)
        self.wait = wait

    def infer_now(self, request):
        if request.model in self.wait:
            return None
        self.asked.append(request)
        return self._answer(request, self._outputs(request))


@run
async def test_steps_that_wait_for_nothing_are_answered_at_once():
    models = PromptModels(a=plus(1), b=plus(10))
    running = ensemble(models, (A, "X", "t"), (B, "t", "Y")).run(ask())
    with pytest.raises(StopIteration) as ended:
        running.send(None)
    assert values(ended.value.value) == {"Y": [12, 13, 14]}


@run
async def test_a_step_that_has_to_wait_is_asked_once():
    models = PromptModels("b", a=plus(1), b=plus(10))
    answer = await ensemble(models, (A, "X", "t"), (B, "t", "Y")).run(ask())
    assert (values(answer), models.names()) == ({"Y": [12, 13, 14]}, ["a", "b"])


@run
async def test_a_step_that_fails_at_once_is_named():
    models = PromptModels(a=fail)
    with pytest.raises(BackendFailed, match=r"no luck; step 0 \(model 'a'\)") as caught:
        await ensemble(models, (A, "X", "Y")).run(ask())
    assert str(caught.value.__cause__) == "no luck"  # the log shows where that came from
