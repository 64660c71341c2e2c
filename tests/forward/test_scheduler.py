"""Requests that reach a process of the server that does not own them."""

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest
from models import (
    COUNT,
    COUNT_CONFIG,
    ECHO,
    FAILS,
    HEAD,
    INT_CONFIG,
    SINGLE,
    STATE_CONFIG,
    SUMS,
    SUMS_CONFIG,
    TWICE,
    WAITS,
    WHO,
)

from inferd.config.options.cache import LocalCacheSettings
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.request import InferRequest, WantedOutput
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest, Overloaded, Unavailable
from inferd.forward.owner import model_key, owner_of
from inferd.forward.scheduler import ForwardScheduler
from inferd.schedulers.direct import DirectScheduler
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor

OWNER = Path(__file__).parent / "owner_process.py"


def name_owned_by(number, count, stem):
    """Return a name that begins with `stem`, of a model that process `number` owns."""
    names = (f"{stem}{n}" for n in range(100))
    return next(n for n in names if owner_of(model_key(n), range(count)) == number)


def values(response):
    [output] = response.outputs
    return output.numpy().tolist()


def tensors_of(datatype):
    """Yield inputs of shape [2, 3] and without elements."""
    if datatype is DataType.BYTES:
        yield Tensor("INPUT0", datatype, (2, 3), encode_strings([b"", b"a", b"\0\xff"] * 2, "x"))
        yield Tensor("INPUT0", datatype, (0, 3), b"")
        return
    size = datatype.size_bytes
    drawn = np.random.default_rng(5).integers(0, 2 if datatype is DataType.BOOL else 256, 6 * size)
    yield Tensor("INPUT0", datatype, (2, 3), drawn.astype(np.uint8).tobytes())
    yield Tensor("INPUT0", datatype, (2, 0), b"")


@pytest.mark.parametrize("datatype", DataType, ids=lambda one: one.value)
def test_a_forwarded_answer_has_the_bits_of_a_direct_one(together, datatype):
    name = {"BYTES": "STRING"}.get(datatype.value, datatype.value)

    async def go():
        async with together(2, echo=(SINGLE + ECHO % (name, name), None)) as all_:
            found = []
            for tensor in tensors_of(datatype):
                for number in (all_.owner("echo"), all_.other("echo")):
                    request = InferRequest("echo", "", "7", [tensor], parameters={"a": 1, "b": "c"})
                    response = await all_.engines[number].infer(request)
                    [output] = response.outputs
                    said = response.model, response.version, response.id, response.parameters
                    found.append((said, output.name, output.shape, bytes(output.view())))
            return found, all_.counted("echo")

    found, counted = asyncio.run(go())
    assert found[0] == found[1] and found[2] == found[3]
    assert found[0][3] == bytes(next(tensors_of(datatype)).view())
    # Each is counted where it came from, and so is its execution, which it shared with none.
    assert counted == [(2, 0, 2), (2, 0, 2)]


def test_a_large_answer_arrives_whole(together):
    array = np.arange(3 << 20, dtype=np.int32).reshape(1, -1)

    async def go():
        async with together(2, echo=(SINGLE + ECHO % ("INT32", "INT32"), None)) as all_:
            request = InferRequest(
                "echo", inputs=[Tensor("INPUT0", DataType.INT32, array.shape, array)]
            )
            return await all_.engines[all_.other("echo")].infer(request)

    assert np.array_equal(asyncio.run(go()).outputs[0].numpy(), array)


def test_instances_in_workers_are_spread_over_the_processes(together, ask):
    four = INT_CONFIG + "instance_group { kind: KIND_CPU count: 4 }"
    one = INT_CONFIG + "instance_group { kind: KIND_CPU count: 1 }"

    async def go():
        async with together(2, four=(four, WHO), one=(one, WHO)) as all_:
            counts = all_.instance_counts("four"), sorted(all_.instance_counts("one"))
            pids = {}
            for model in ("four", "one"):
                found = await asyncio.gather(
                    *(e.infer(ask(model, IN=[1])) for e in all_.engines for _ in range(8))
                )
                pids[model] = len({values(response)[0] for response in found})
            return counts, pids

    assert asyncio.run(go()) == (([2, 2], [0, 1]), {"four": 4, "one": 1})


def test_what_arrives_at_a_process_without_instances_is_spread_over_those_that_have_some(
    together, ask
):
    two = INT_CONFIG + "instance_group { kind: KIND_CPU count: 2 }"

    async def go():
        async with together(3, two=(two, WHO)) as all_:
            [without] = [n for n, count in enumerate(all_.instance_counts("two")) if not count]
            engine = all_.engines[without]
            found = [values(await engine.infer(ask("two", IN=[1])))[0] for _ in range(4)]
            return found

    first, second, *rest = asyncio.run(go())
    assert first != second
    assert rest == [first, second]


@pytest.mark.parametrize(
    ("config", "source", "name"),
    [(SUMS_CONFIG, SUMS, "IN"), (STATE_CONFIG, None, "INPUT0")],
    ids=["worker", "server"],
)
def test_a_sequence_runs_in_one_process_wherever_its_requests_arrive(
    together, ask, config, source, name
):
    ids = [5, "5", 2**64 - 1, "five", *range(6, 16)] if source else [5, *range(10, 30)]

    async def go():
        async with together(3, sums=(config, source)) as all_:
            found = {}
            for step in range(1, 5):
                for place, id in enumerate(ids):
                    engine = all_.engines[(step + place) % 3]
                    flags = (id, step == 1, step == 4)
                    data = {name: [step] if source else [[step]]}
                    response = await engine.infer(ask("sums", flags, **data))
                    found.setdefault(id, []).append(np.ravel(values(response))[0])
            return found, all_.counted("sums")

    found, counted = asyncio.run(go())
    expected = [1, 3, 6, 10] if source else [1, 2, 3, 4]
    assert found == dict.fromkeys(ids, expected)
    assert sum(row[0] for row in counted) == 4 * len(ids)
    assert all(row[0] for row in counted)  # where they arrived


def test_a_sequence_that_has_not_begun_is_refused_as_by_one_process(together, ask):
    async def go():
        async with together(2, sums=(STATE_CONFIG, None)) as all_:
            texts = []
            for engine in all_.engines:
                with pytest.raises(InvalidRequest) as caught:
                    await engine.infer(ask("sums", (7, False, False), INPUT0=[[1]]))
                texts.append(caught.value.message)
            return texts

    here, there = asyncio.run(go())
    assert here == there
    assert "must specify the START flag" in here


def test_errors_keep_their_class_and_text(together, ask):
    async def go():
        async with together(2, fails=(INT_CONFIG, FAILS)) as all_:
            found = []
            for engine in all_.engines:
                with pytest.raises(Unavailable) as caught:
                    await engine.infer(ask("fails", IN=[1]))
                found.append((type(caught.value).code, caught.value.message))
            return found, all_.counted("fails")

    [here, there], counted = asyncio.run(go())
    assert here == there
    assert "no luck" in here[1]
    assert counted == [(0, 1, 1), (0, 1, 1)]


def test_the_answers_of_a_stream_arrive_in_order(together, ask):
    async def go():
        async with together(2, numbers=(COUNT_CONFIG, COUNT)) as all_:
            found = []
            for engine in all_.engines:
                answers = [one async for one in engine.stream(ask("numbers", IN=[100]))]
                found.append([values(one)[0] for one in answers if one.outputs])
            return found, all_.counted("numbers")

    found, counted = asyncio.run(go())
    assert found == [list(range(100))] * 2
    assert [row[:2] for row in counted] == [(1, 0), (1, 0)]


def test_a_stream_that_its_client_leaves_ends_in_its_owner(together, ask, until):
    async def go():
        async with together(2, numbers=(COUNT_CONFIG, COUNT)) as all_:
            owner, other = all_.owner("numbers"), all_.other("numbers")
            answers = all_.engines[other].stream(ask("numbers", IN=[2**31 - 1]))
            first = await anext(answers)
            [end] = all_.engines[owner].exchange._ends
            assert len(end._running) == 1
            await answers.aclose()
            await until(lambda: not end._running)
            # Its instance is free again.
            again = [one async for one in all_.engines[other].stream(ask("numbers", IN=[1]))]
            return values(first), [values(one) for one in again if one.outputs]

    assert asyncio.run(go()) == ([0], [[0]])


def test_an_owner_that_ends_fails_what_it_had(together, ask, until):
    held = STATE_CONFIG.replace("sequences: 64", "sequences: 1")

    async def go():
        async with together(2, sums=(held, None)) as all_:
            ids = iter(range(1, 100))
            origin = all_.engines[0]
            away = [
                i
                for i in ids
                if all_.scheduler(0, "sums")._owner(ask("sums", (i, True, False))) == 1
            ]
            await origin.infer(ask("sums", (away[0], True, False), INPUT0=[[1]]))
            waiting = asyncio.create_task(
                origin.infer(ask("sums", (away[1], True, False), INPUT0=[[1]]))
            )
            [end] = all_.engines[1].exchange._ends
            await until(lambda: end._running)
            end.close()
            with pytest.raises(Unavailable, match="process 1 of the server") as caught:
                await waiting
            return caught.value.is_lost

    assert asyncio.run(go())


def test_a_request_waits_for_an_owner_that_is_being_restarted(together, ask, until):
    async def go():
        async with together(2, m=(SINGLE + INT_CONFIG, TWICE)) as all_:
            owner, other = all_.owner("m"), all_.other("m")
            all_.tell(other)
            waiting = asyncio.create_task(all_.engines[other].infer(ask("m", IN=[4])))
            await until(lambda: all_.engines[other].exchange.peers._waits)
            all_.tell(owner, other)
            found = values(await waiting)
            all_.tell(other)
            request = ask("m", IN=[4])
            request.timeout_us = 1000
            with pytest.raises(Unavailable, match=r"was not ready within 0\.001 s"):
                await all_.engines[other].infer(request)
            return found

    assert asyncio.run(go()) == [8]


HANGS = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] }
parameters { key: "execute_delay_ms" value: { string_value: "600000" } }
"""


def test_an_owner_that_is_killed_fails_what_it_had_and_its_successor_takes_over(
    together, ask, until
):
    async def owner_process(all_, path):
        command = [sys.executable, str(OWNER), str(all_.root), "1", "2", path]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert await process.stdout.readline() == b"ready\n"
        return process

    async def go():
        hangs = name_owned_by(1, 2, "hangs")
        quick = name_owned_by(1, 2, "quick")
        models = {hangs: (SINGLE + HANGS, None), quick: (SINGLE + ECHO % ("INT32", "INT32"), None)}
        async with together(2, **models) as all_:
            origin, path = all_.engines[0], f"{all_.paths[1]}.again"
            all_.paths[1] = path
            killed = await owner_process(all_, path)
            all_.tell(0, 1)
            await origin.infer(ask(quick, INPUT0=[[1]]))
            requests = [ask(hangs, INPUT0=[[1]]) for _ in range(3)]
            waiting = [asyncio.create_task(origin.infer(one)) for one in requests]
            await until(lambda: all_.scheduler(0, hangs)._sent[1] == 3)
            killed.kill()
            await killed.wait()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            all_.tell(0)
            all_.paths[1] = f"{path}.2"
            successor = await owner_process(all_, all_.paths[1])
            all_.tell(0, 1)
            answer = await origin.infer(ask(quick, INPUT0=[[3]]))
            successor.kill()
            await successor.wait()
            return found, values(answer), all_.counted(hangs)[0][:2]

    found, after, counted = asyncio.run(go())
    assert [(type(one), one.is_lost) for one in found] == [(Unavailable, True)] * 3
    assert "process 1 of the server, which had the request, ended; it may have run" in str(found[0])
    assert after == [[3]]
    assert counted == (0, 3)


BATCHED = """backend: "identity"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: 8 }
"""


def test_an_execution_that_requests_share_is_counted_where_it_runs(together, ask):
    async def go():
        async with together(2, m=(SINGLE + BATCHED, None)) as all_:
            owner, other = all_.owner("m"), all_.other("m")
            places = [owner] * 3 + [other] * 5
            found = await asyncio.gather(
                *(all_.engines[n].infer(ask("m", INPUT0=[[i]])) for i, n in enumerate(places))
            )
            counted = all_.counted("m")
            queues = [
                all_.engines[n].whole.statistics("m")[0].inference_stats.queue for n in (0, 1)
            ]
            return [values(one) for one in found], counted[owner], counted[other], queues

    found, at_owner, at_other, queues = asyncio.run(go())
    assert found == [[[i]] for i in range(8)]
    assert (at_owner, at_other) == ((3, 0, 1), (5, 0, 0))
    assert all(queue.ns > 0 for queue in queues)


def test_more_instances_go_to_the_processes_in_turn(together, ask):
    config = INT_CONFIG + "instance_group { kind: KIND_CPU count: %d }"

    async def go():
        async with together(3, {"model_control_mode": "poll"}, m=(config % 1, WHO)) as all_:
            found = []
            for count in (4, 5, 2, 6):
                (all_.root / "m" / "config.pbtxt").write_text(config % count)
                for engine in all_.engines:
                    await asyncio.gather(*await engine.control.look())
                asks = [e.infer(ask("m", IN=[1])) for e in all_.engines for _ in range(12)]
                pids = {values(one)[0] for one in await asyncio.gather(*asks)}
                found.append((sorted(all_.instance_counts("m")), len(pids)))
            return found

    assert asyncio.run(go()) == [([1, 1, 2], 4), ([1, 2, 2], 5), ([0, 1, 1], 2), ([2, 2, 2], 6)]


def test_while_processes_change_a_version_each_has_the_old_and_the_new_one(together, ask):
    """One process has unloaded it already, the other still sends requests, or begins to."""
    explicit = {"model_control_mode": "explicit", "load_model": ("m",)}

    async def go():
        async with together(2, explicit, m=(SINGLE + INT_CONFIG, TWICE)) as all_:
            owner, other = all_.engines[all_.owner("m")], all_.engines[all_.other("m")]
            await other.infer(ask("m", IN=[1]))
            await owner.changes.unload(UnloadRequest("m"))
            found = [values(await other.infer(ask("m", IN=[2])))]
            await owner.changes.load(LoadRequest("m"))
            found.append(values(await other.infer(ask("m", IN=[3]))))
            await other.changes.unload(UnloadRequest("m"))
            return found

    assert asyncio.run(go()) == [[4], [6]]


def test_an_owner_without_the_version_says_so(together, ask):
    explicit = {"model_control_mode": "explicit", "load_model": ("m",)}

    async def go():
        async with together(2, explicit, m=(SINGLE + INT_CONFIG, TWICE)) as all_:
            owner, other = all_.engines[all_.owner("m")], all_.engines[all_.other("m")]
            (all_.root / "m" / "config.pbtxt").write_text(
                (SINGLE + INT_CONFIG).replace("dims: [ -1 ]", "dims: [ 3 ]")
            )
            await owner.changes.load(LoadRequest("m"))
            # Checked for other dims than the owner's: the old version runs it, while it is there.
            found = values(await other.infer(ask("m", IN=[2])))
            owner.exchange.owned.remove(owner.exchange.owned._versions["m", "1"][0])
            with pytest.raises(Unavailable, match="model 'm' version 1 is being loaded or unlo"):
                await other.infer(ask("m", IN=[2]))
            return found

    assert asyncio.run(go()) == [4]


STEPS = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "twice" model_version: -1 input_map { key: "IN" value: "IN" }
         output_map { key: "OUT" value: "MID" } }
  step { model_name: "sums" model_version: -1 input_map { key: "IN" value: "MID" }
         output_map { key: "OUT" value: "OUT" } }
}
"""


def test_the_steps_of_an_ensemble_are_forwarded_with_their_sequences(together, ask):
    async def go():
        models = {
            "twice": (SINGLE + INT_CONFIG, TWICE),
            "sums": (SUMS_CONFIG, SUMS),
            "both": (STEPS, None),
        }
        async with together(2, **models) as all_:
            found = []
            for step in range(4):
                request = ask("both", ("text", step == 0, step == 3), IN=[1])
                found.append(values(await all_.engines[step % 2].infer(request)))
            return found

    assert asyncio.run(go()) == [[2], [4], [6], [8]]


def test_what_a_client_wants_in_its_memory_is_written_by_the_process_it_asks(together, ask, shared):
    memory = shared(64)

    async def go():
        async with together(2, m=(SINGLE + ECHO % ("INT32", "INT32"), None)) as all_:
            engine = all_.engines[all_.other("m")]
            engine.regions.allowed = True
            engine.regions.add(engine.regions.open_system("r", memory.key, 0, 64))
            spans = [engine.regions.span("r", at, 8) for at in (0, 8)]
            array = np.array([[5, 6]], np.int32)
            memory.write(array)
            data = spans[0].view
            request = InferRequest("m", inputs=[Tensor("INPUT0", DataType.INT32, (1, 2), data)])
            request.outputs = [WantedOutput("OUTPUT0", place=spans[1])]
            request.spans = spans
            await engine.infer(request)

    asyncio.run(go())
    assert memory.read(np.int32, 2, 8).tolist() == [5, 6]


def test_a_server_of_one_process_forwards_nothing(ask, tmp_path, together):
    async def go():
        async with together(2, m=(INT_CONFIG, TWICE)) as all_:
            alone = Engine()
            await alone.load_all([all_.root])
            kinds = [type(e.find("m", "").scheduler) for e in (alone, *all_.engines)]
            assert alone.exchange is None
            await alone.close(30)
            return kinds

    assert asyncio.run(go()) == [DirectScheduler, ForwardScheduler, ForwardScheduler]


LIMITED = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1, -1 ] }
instance_group { count: 2 rate_limiter { resources { name: "R" count: 1 } } }
"""


def test_models_that_share_resources_are_all_in_one_process(together, ask):
    async def go():
        names = ("m", "n", "o", "p")
        options = {"rate_limits": {("R", None): 1}}
        async with together(3, options, **dict.fromkeys(names, (LIMITED, None))) as all_:
            counts = {tuple(all_.instance_counts(name)) for name in names}
            found = await asyncio.gather(
                *(e.infer(ask(name, INPUT0=[[1]])) for e in all_.engines for name in names)
            )
            return counts, [values(one) for one in found]

    counts, found = asyncio.run(go())
    assert sorted(counts.pop()) == [0, 0, 2]
    assert not counts
    assert found == [[[1]]] * 12


CALLER = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="twice",
                requested_output_names=["OUT"],
                inputs=request.inputs(),
            )
            answer = call.exec()
            assert not answer.has_error(), answer.error().message()
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
"""
)


def test_a_model_that_runs_elsewhere_calls_others_from_there(together, ask):
    async def go():
        models = {"caller": (INT_CONFIG, CALLER), "twice": (INT_CONFIG, TWICE)}
        async with together(2, **models) as all_:
            found = await asyncio.gather(*(e.infer(ask("caller", IN=[7])) for e in all_.engines))
            owner = all_.owner("caller")
            called = [row[0] for row in all_.counted("twice")]
            return [values(one) for one in found], called[owner], called[1 - owner]

    assert asyncio.run(go()) == ([[14], [14]], 2, 0)


def test_an_answer_that_was_passed_on_is_kept_where_it_was_requested(together, ask):
    cached = SINGLE + ECHO % ("INT32", "INT32") + "response_cache { enable: true }"

    async def go():
        options = {"cache": LocalCacheSettings(1 << 20)}
        async with together(2, options, m=(cached, None)) as all_:
            owner, other = all_.owner("m"), all_.other("m")
            asks = [ask("m", INPUT0=[[1]]) for _ in range(2)]
            found = [values(await all_.engines[other].infer(one)) for one in asks]
            statistics = [e.whole.statistics("m")[0] for e in all_.engines]
            return found, [
                (statistics[n].inference_stats.cache_hit.count, statistics[n].execution_count)
                for n in (other, owner)
            ]

    assert asyncio.run(go()) == ([[[1]]] * 2, [(1, 1), (0, 0)])


def test_a_request_that_its_client_gives_up_leaves_the_queue_of_its_owner(together, ask, until):
    async def go():
        async with together(2, m=(SINGLE + BATCHED, None)) as all_:
            owner, other = all_.owner("m"), all_.other("m")
            running = asyncio.create_task(all_.engines[other].infer(ask("m", INPUT0=[[1]])))
            queue = all_.scheduler(owner, "m")
            await until(lambda: queue.pending_count == 1)
            running.cancel()
            await until(lambda: queue.pending_count == 0)
            await asyncio.gather(running, return_exceptions=True)
            await until(lambda: not all_.scheduler(other, "m")._sent.total())
            counted = all_.counted("m")
            return running.cancelled(), counted[other], counted[owner]

    assert asyncio.run(go()) == (True, (0, 1, 0), (0, 0, 0))


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_a_request_that_its_client_gives_up_while_it_runs_is_counted_as_executed(
    together, ask, until, is_decoupled
):
    config = INT_CONFIG + "model_transaction_policy { decoupled: true }\n" * is_decoupled

    async def read(engine, request):
        return [answer async for answer in engine.stream(request)]

    async def go():
        async with together(2, m=(config, WAITS)) as all_:
            begin = read if is_decoupled else Engine.infer
            owner, other = all_.owner("m"), all_.other("m")
            running = asyncio.create_task(begin(all_.engines[other], ask("m", IN=[1])))
            await until(lambda: all_.engines[owner].exchange._ends)
            [end] = all_.engines[owner].exchange._ends
            await until(lambda: any(one.request.started_ns for one in end._running.values()))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            link = all_.engines[other].exchange.peers.link(owner)
            await until(lambda: not link._given_up)
            counted = all_.counted("m")
            return counted[other], counted[owner]

    assert asyncio.run(go()) == ((0, 1, 1), (0, 0, 0))


def test_what_its_owner_refuses_is_counted_as_refused(together, ask, until):
    full = BATCHED.replace("dynamic_batching {", "dynamic_batching { %s")
    full %= "default_queue_policy { max_queue_size: 1 }"

    async def go():
        async with together(2, m=(SINGLE + full, None)) as all_:
            owner, other = all_.owner("m"), all_.engines[all_.other("m")]
            first = asyncio.create_task(other.infer(ask("m", INPUT0=[[1]])))
            await until(lambda: all_.scheduler(owner, "m").pending_count == 1)
            with pytest.raises(Overloaded, match="Exceeds maximum queue size"):
                await other.infer(ask("m", INPUT0=[[1]]))
            counted = all_.counted("m"), other.find("m", "").counts.refused_count
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return counted

    assert asyncio.run(go()) == ([(0, 0, 0)] * 2, 1)


def test_all_processes_show_the_same_configuration(together):
    """A process without instances completes it, too, and says of joining what needs no instance."""
    written = INT_CONFIG + "max_batch_size: 4 dynamic_batching {}"
    completed = (
        TWICE
        + """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]})
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        return config
"""
    )

    async def go():
        models = {"written": (written, TWICE), "completed": ('backend: "python"', completed)}
        async with together(3, **models) as all_:
            return [[e.find(name, "").shown_config() for e in all_.engines] for name in models]

    for configs in asyncio.run(go()):
        assert configs[0] == configs[1] == configs[2]
        assert configs[0].input[0].name == "IN"
        assert configs[0].parameters["inferd_joined"] == "joined"
