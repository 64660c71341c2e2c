"""A client of ModelStreamInfer, its network and models, without sockets, threads or clocks.

What happens, and in which order, is drawn from a seed, so that a run that fails is played again by
its seed. The server's side is real, from the bytes of the connection to the schedulers.
"""

import asyncio
import random
import struct
from collections import defaultdict, deque

import hpack
import numpy as np
from simulation import passes
from tritonclient.grpc import service_pb2 as pb

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.server import ServerConfig
from inferd.core.interfaces import Opened
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    Setting,
    encode_frame,
    encode_rst_stream,
    encode_settings,
    encode_window_update,
)
from inferd.http.h2.hpack import encode_fields
from inferd.schedulers.direct import DirectScheduler
from inferd.schedulers.execution.execution import Execution
from inferd.server.options import grpc_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.http2_server import Http2Server

FP32 = DataType.FP32
PATH = b"/inference.GRPCInferenceService/ModelStreamInfer"
SIZES = [1, 1, 1, 10, 3_000, 20_000, 70_000]
"""Elements of an answer: some are larger than any window."""

MOST_PINGS = 2
"""More, while no answers come, would be a reason to end the connection."""

AMPLE, NARROW = 10_000_000, 100_000
"""A window that need not be widened, and one that must: while it is wide, a client says nothing."""

STEPS = 120
QUIET_ROUNDS = 6
ENDING_MS = 50
ENDING_COUNT = 200
"""So often, in steps of ENDING_MS, time may pass before all must have ended."""

MODELS = ["id", "once", "often", "far"]


def answer_to(request, values, *, final=True, error=None):
    data = np.asarray(values, "f4")
    return InferResponse("", "", outputs=[Tensor("Y", FP32, data.shape, data)], final=final)


class Plan:
    """What a model answers to one request: arrays of these sizes, then perhaps an error.

    With `tells_the_end` the last answer says that it is the last; with `asks_for_end` the client
    wants an empty answer where none says so.
    """

    def __init__(self, rng, name, model):
        self.name, self.model = name, model
        answers_once = model in ("id", "once")
        self.sizes = [rng.choice(SIZES) for _ in range(1 if answers_once else rng.randint(0, 8))]
        self.fails = model != "id" and rng.random() < 0.15
        self.error = BackendFailed("as planned")
        if model != "far" and rng.random() < 0.3:
            self.error = asyncio.CancelledError()  # of a task of the model's own
        if self.fails and answers_once:
            self.sizes = []
        self.tells_the_end = answers_once or (rng.random() < 0.5 and not self.fails)
        self.asks_for_end = rng.random() < 0.3
        self.left = deque(enumerate(self.sizes))
        self.is_begun = self.is_over = False

    def message(self):
        data = np.zeros(self.sizes[0] if self.model == "id" else 1, "f4")
        request = pb.ModelInferRequest(
            model_name=self.model,
            id=self.name,
            inputs=[{"name": "X", "datatype": "FP32", "shape": [len(data)]}],
            raw_input_contents=[data.tobytes()],
        )
        request.parameters["triton_enable_empty_final_response"].bool_param = self.asks_for_end
        message = pb.ModelInferRequest.SerializeToString(request)
        return struct.pack(">BL", 0, len(message)) + message

    def expected(self):
        told = [(number, size) for number, size in enumerate(self.sizes)]
        if self.fails:
            return [*told, "error"]
        is_told = self.tells_the_end and told
        return told if is_told or not self.asks_for_end else [*told, "end"]

    def next(self, request):
        """The next answer, an error, or None at the end."""
        if self.left:
            number, size = self.left.popleft()
            values = np.full(size, number, "f4")
            return answer_to(request, values, final=self.tells_the_end and not self.left)
        self.is_over = True
        return self.error if self.fails else None


class Identity:
    """Answers at once."""

    async def run(self, request):
        return answer_to(request, np.zeros(request.inputs[0].shape, "f4"))


class Played:
    """Models that answer when the world says so, here in the server."""

    def __init__(self, world):
        self.world = world
        self.said = defaultdict(asyncio.Queue)

    def begin(self, request):
        plan = self.world.plans[request.id]
        plan.is_begun = True
        self.world.producers.append((plan, request, self.said[request.id].put_nowait))

    async def run(self, request):
        self.begin(request)
        said = await self.said[request.id].get()
        if isinstance(said, BaseException):
            raise said
        return said

    async def stream(self, request):
        self.begin(request)
        while (said := await self.said[request.id].get()) is not None:
            if isinstance(said, BaseException):
                raise said
            yield said


class Elsewhere:
    """An instance in another process, whose answers the server gets within a window."""

    WINDOW = 16
    CREDIT_AT = 8

    def __init__(self, world):
        self.world = world
        self.is_free, self.running_count, self.unavailable_reason = True, 0, ""
        self.retries = False
        self.on_change = lambda: None
        self.streams = {}

    def attach(self, loop): ...
    def begin(self, requests, finish): ...
    def cancel(self, requests): ...
    def close(self): ...
    async def closed(self, timeout_s): ...
    def execute(self, requests): ...

    async def says_ready(self):
        return True

    def begin_stream(self, request, deliver):
        number = len(self.world.plans) * 1000 + self.world.far_count
        self.world.far_count += 1
        plan = self.world.plans[request.id]
        plan.is_begun = True
        self.streams[number] = [0, self.WINDOW, 0]  # spent, granted, taken
        self.running_count += 1
        self.is_free = self.running_count < 2

        def put(answer):
            stream = self.streams.get(number)
            if stream is None:
                return
            if answer is None or isinstance(answer, Exception):
                if answer is not None:
                    deliver(answer, 1)
                self.end(number)
                deliver(None, 0)
                self.on_change()
            else:
                share = min(1 + answer.outputs[0].size_bytes // (1 << 16), self.WINDOW)
                stream[0] += share
                deliver(answer, share)

        put.has_room = lambda: self.has_room(number)
        self.world.producers.append((plan, request, put))
        return number

    def has_room(self, number):
        stream = self.streams.get(number)
        return stream is None or stream[1] > stream[0]

    def end(self, number):
        del self.streams[number]
        self.running_count -= 1
        self.is_free = True

    def credit(self, number, share):
        if stream := self.streams.get(number):
            stream[2] += share
            if stream[2] >= self.CREDIT_AT:
                stream[1] += stream[2]
                stream[2] = 0

    def cancel_stream(self, number):
        if number in self.streams:
            self.end(number)
            self.on_change()


class Wire(asyncio.Transport):
    """The server's transport, and the bytes that are on their way in both directions."""

    def __init__(self, protocol, capacity, most_unsent):
        super().__init__()
        self.protocol = protocol
        self.capacity = capacity  # of the network
        self.to_server, self.to_client, self.unsent = bytearray(), bytearray(), bytearray()
        self.is_reading, self.is_closed, self.is_lost, self.is_full = True, False, False, False
        self.high = self.most = most_unsent
        protocol.connection_made(self)

    def get_extra_info(self, name, default=None):
        return ("10.0.0.1", 50000) if name == "peername" else default

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = min(high, self.most)

    def get_write_buffer_size(self):
        return len(self.unsent)

    def write(self, data):
        if not self.is_closed:
            self.unsent += data
            self._send()
            if len(self.unsent) > self.high and not self.is_full:
                self.is_full = True
                self.protocol.pause_writing()

    def writelines(self, buffers):
        self.write(b"".join(buffers))

    def _send(self):
        room = self.capacity - len(self.to_client)
        self.to_client += self.unsent[:room]
        del self.unsent[:room]

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def is_closing(self):
        return self.is_closed

    def can_write_eof(self):
        return True

    def write_eof(self): ...

    def close(self):
        if not self.is_closed:
            self.is_closed = True
            if not self.unsent:
                asyncio.get_running_loop().call_soon(self.lose)

    def abort(self):
        self.is_closed = True
        self.unsent.clear()
        asyncio.get_running_loop().call_soon(self.lose)

    def lose(self):
        """The connection is gone."""
        if not self.is_lost:
            self.is_closed = self.is_lost = True
            self.protocol.connection_lost(None)

    def carry_to_server(self, count):
        """Have the server read once."""
        if not self.is_reading or self.is_closed or not self.to_server:
            return
        buffer = self.protocol.get_buffer(-1)
        count = min(count, len(self.to_server), len(buffer))
        buffer[:count] = self.to_server[:count]
        del self.to_server[:count]
        self.protocol.buffer_updated(count)

    def carry_to_client(self, count):
        """Return what arrives at the client."""
        data = bytes(self.to_client[:count])
        del self.to_client[:count]
        self._send()
        if self.is_closed and not self.unsent:
            self.lose()
        elif self.is_full and len(self.unsent) <= self.high // 4:
            self.is_full = False
            self.protocol.resume_writing()
        return data


class Call:
    """One stream as its client sees it."""

    def __init__(self, plans, window):
        self.plans = plans
        self.unsent = bytearray(b"".join(plan.message() for plan in plans))
        self.window = window
        self.kept_back = 0
        self.has_closed = self.is_reset = self.is_over = False
        self.status = None
        self.received = bytearray()
        self.answers = defaultdict(list)
        self.order = []

    def take(self, data):
        self.received += data
        while len(self.received) >= 5:
            size = 5 + int.from_bytes(self.received[1:5], "big")
            if len(self.received) < size:
                return
            answer = pb.ModelStreamInferResponse.FromString(bytes(self.received[5:size]))
            del self.received[:size]
            self._note(answer)

    def _note(self, answer):
        got = answer.infer_response
        name = got.id
        self.order.append(name)
        if answer.error_message:
            self.answers[name].append("error")
        elif not got.outputs:
            self.answers[name].append("end")
        else:
            values = np.frombuffer(got.raw_output_contents[0], "f4")
            assert (values == values[0]).all()
            self.answers[name].append((int(values[0]), len(values)))


class World:
    """One run: call `play` on a SimulatedLoop. `told` is what happened, in order."""

    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(seed)
        self.plans, self.calls, self.producers = {}, {}, []
        self.far_count = 0
        self.told = []
        self.is_stopping = False
        self.stopped = None

    async def play(self):
        rng = self.rng
        self._serve()
        self._greet()
        actions = {
            self.open: 6, self.send: 12, self.close: 5, self.reset: 1.5, self.grant: 10,
            self.produce: 14, self.carry_up: 16, self.carry_down: 16, self.set_window: 1,
            self.ping: 0.5, self.go_away: 0.3, self.sweep: 1, self.wait: 1,
            self.stop: rng.choice([0, 0, 0, 0.3]), self.lose: rng.choice([0, 0, 0, 0.2]),
        }  # fmt: skip
        for _ in range(rng.randint(STEPS // 3, STEPS)):
            [action] = rng.choices([*actions], [*actions.values()])
            self.told.append(action.__name__)
            result = action()
            if result is not None:
                await result
            for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 5])):
                await asyncio.sleep(0)
        await self._finish()
        self._check()
        self.wire.lose()
        for _ in range(9):
            await asyncio.sleep(0)
        self._check_nothing_is_left()

    def _serve(self):
        self.engine = Engine()
        played = Played(self)
        self.far = Elsewhere(self)
        execution = Execution("far", [Opened(self.far, self.far)], may_run_inline=False)
        for name, scheduler in (
            ("id", Identity()),
            ("once", played),
            ("often", played),
            ("far", DirectScheduler(execution)),
        ):
            config = ModelConfig(
                name=name,
                input=(ModelInput("X", FP32, (-1,)),),
                output=(ModelOutput("Y", FP32, (-1,)),),
                decoupled=name in ("often", "far"),
            )
            self.engine.catalog.add(Served(config, 1, "", scheduler))
        self.engine.readiness.finish_loading()
        loop = asyncio.get_running_loop()
        options = grpc_options(ServerConfig())
        self.server = Http2Server(self.engine, options, clock=loop.time)
        capacity = self.rng.choice([1_000, 20_000, 200_000])
        most_unsent = self.rng.choice([1, 1 << 20])
        self.wire = Wire(self.server.connect(), capacity, most_unsent)

    def _greet(self):
        self.first_window = self.rng.choice([0, 100, 5_000, 65_535, 1_000_000])
        self.window = 65_535  # of the connection
        self.kept_back = 0
        self.unacknowledged = deque([0])  # by how much each SETTINGS on its way narrows windows
        self.next_id = 1
        self.ping_count = 0
        self.received = bytearray()
        self.decoder = hpack.Decoder()
        settings = encode_settings({Setting.INITIAL_WINDOW_SIZE: self.first_window})
        self.wire.to_server += PREFACE + settings
        if self.rng.random() < 0.5:
            self.window += AMPLE
            self.wire.to_server += encode_window_update(0, AMPLE)

    # --- what the client does ---

    def _open_calls(self):
        return [(id, call) for id, call in self.calls.items() if not call.is_over]

    def _some_call(self, condition):
        found = [(id, call) for id, call in self._open_calls() if condition(call)]
        return self.rng.choice(found) if found else (0, None)

    def open(self):
        if len(self.calls) >= 6 or self.is_stopping:
            return
        rng = self.rng
        plans = []
        for _ in range(rng.choice([0, 1, 1, 2, 5])):
            plan = Plan(rng, f"{len(self.plans)}", rng.choice(MODELS))
            self.plans[plan.name] = plan
            plans.append(plan)
        head = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", PATH), (b":authority", b"x"),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        ]  # fmt: skip
        self.calls[self.next_id] = Call(plans, self.first_window)
        frame = encode_frame(HEADERS, END_HEADERS, self.next_id, encode_fields(head))
        self.wire.to_server += frame
        self.next_id += 2

    def send(self):
        id, call = self._some_call(lambda call: call.unsent)
        if call is not None:
            count = self.rng.choice([1, 7, 60, 16_384, 16_384])
            self._send(id, call, count, ends=self.rng.random() < 0.3)

    def _send(self, id, call, count, *, ends):
        data = bytes(call.unsent[:count])
        del call.unsent[:count]
        call.has_closed = ends and not call.unsent
        flags = END_STREAM if call.has_closed else 0
        self.wire.to_server += encode_frame(DATA, flags, id, data)

    def close(self):
        id, call = self._some_call(lambda call: not call.unsent and not call.has_closed)
        if call is not None:
            self._send(id, call, 0, ends=True)

    def reset(self):
        id, call = self._some_call(lambda call: True)
        if call is not None:
            call.is_reset = call.is_over = True
            self.wire.to_server += encode_rst_stream(id, ErrorCode.CANCEL)

    def grant(self):
        if self.rng.random() < 0.5:
            self._grant_all()
        elif self.kept_back:
            count = self.rng.randint(1, self.kept_back)
            self.kept_back -= count
            self.window += count
            self.wire.to_server += encode_window_update(0, count)

    def _grant_all(self):
        if self.kept_back and self.window < NARROW:
            self.wire.to_server += encode_window_update(0, self.kept_back)
            self.window, self.kept_back = self.window + self.kept_back, 0
        for id, call in self._open_calls():
            count = call.kept_back + max(0, NARROW - call.window - call.kept_back)
            if count and call.window < NARROW and (self.rng.random() < 0.7 or self.is_ending):
                self.wire.to_server += encode_window_update(id, count)
                call.window, call.kept_back = call.window + count, 0

    is_ending = False

    def set_window(self):
        size = self.rng.choice([0, 100, 5_000, 65_535, 1_000_000])
        for _, call in self._open_calls():
            call.window += size - self.first_window
        self.unacknowledged.append(max(0, self.first_window - size))
        self.first_window = size
        settings = encode_settings({Setting.INITIAL_WINDOW_SIZE: size})
        self.wire.to_server += settings

    def ping(self):
        if self.ping_count < MOST_PINGS:
            self.ping_count += 1
            self.wire.to_server += encode_frame(PING, 0, 0, bytes(8))

    def go_away(self):
        self.wire.to_server += encode_frame(GOAWAY, 0, 0, bytes(8))

    # --- what the network, the models and the server do ---

    def carry_up(self):
        self.wire.carry_to_server(self.rng.choice([1, 9, 50, 1_000, 1 << 20]))

    def carry_down(self):
        self._take(self.wire.carry_to_client(self.rng.choice([1, 9, 1_000, 20_000, 1 << 20])))

    def lose(self):
        self.wire.lose()

    def produce(self):
        some = [one for one in self.producers if getattr(one[2], "has_room", lambda: True)()]
        if some:
            self._produce(self.rng.choice(some))

    def _produce(self, producer):
        plan, request, put = producer
        put(plan.next(request))
        if plan.is_over or (plan.model == "once"):
            self.producers.remove(producer)

    def sweep(self):
        self.server.sweep()

    def wait(self):
        return passes(self.rng.choice([1, 20, 300]))

    def stop(self):
        if self.stopped is None:
            self.is_stopping = True
            self.stopped = asyncio.create_task(self.server.stop(60))

    # --- what the client sees ---

    def _take(self, data):
        self.received += data
        while len(self.received) >= 9:
            high, low, kind, flags, id = struct.unpack_from(">HBBBL", self.received)
            size = 9 + (high << 8 | low)
            if len(self.received) < size:
                return
            payload = bytes(self.received[9:size])
            del self.received[:size]
            self._frame(kind, flags, id, payload)

    def _frame(self, kind, flags, id, payload):
        call = self.calls.get(id)
        if kind == HEADERS:
            fields = dict(self.decoder.decode(payload))
            assert not call.is_over or call.is_reset, "HEADERS after the end"
            if flags & END_STREAM:
                call.status = int(fields["grpc-status"])
                call.is_over = True
        elif kind == DATA:
            self.window -= len(payload)
            self.kept_back += len(payload)
            call.window -= len(payload)
            call.kept_back += len(payload)
            assert self.window >= 0, "more than the window of the connection"
            if not call.is_reset:
                on_its_way = sum(self.unacknowledged)
                assert call.window + on_its_way >= 0, "more than the window of the stream"
                assert not call.is_over, "DATA after the end"
                call.take(payload)
            assert not flags & END_STREAM, "an end without a status"
        elif kind == RST_STREAM:
            code = int.from_bytes(payload, "big")
            assert call.is_over or self.is_stopping, f"the server reset the stream: {code}"
            call.is_over = True
        elif kind == GOAWAY:
            code = int.from_bytes(payload[4:8], "big")
            assert not code, f"the server ended the connection: {code} {payload[8:]}"
        elif kind == PING and not flags:
            self.wire.to_server += encode_frame(PING, 1, 0, payload)
        elif kind == SETTINGS and flags:
            self.unacknowledged.popleft()
        else:
            assert kind in (SETTINGS, WINDOW_UPDATE, PING)

    # --- the end ---

    async def _finish(self):
        """Have everybody do all that is left to do."""
        self.is_ending = True
        for _ in range(ENDING_COUNT):
            quiet = 0
            while quiet < QUIET_ROUNDS:
                quiet = 0 if self._finish_some() else quiet + 1
                await asyncio.sleep(0)
            if self._is_over():
                return
            await passes(ENDING_MS)
            self.server.sweep()

    def _finish_some(self):
        """Do all that can be done now; return whether there was something."""
        if self.wire.is_lost:
            self.producers.clear()
            return False
        for id, call in self._open_calls():
            if not call.has_closed:
                self._send(id, call, 1 << 14, ends=True)
        self._grant_all()
        is_busy = bool(self.wire.to_server or self.wire.to_client) and not self.wire.is_closed
        self.wire.carry_to_server(1 << 20)
        self._take(self.wire.carry_to_client(1 << 20))
        for producer in list(self.producers):
            if getattr(producer[2], "has_room", lambda: True)():
                is_busy = True
                self._produce(producer)
        return is_busy

    def _is_over(self):
        is_over = all(call.is_over for call in self.calls.values()) or self.wire.is_lost
        return is_over and (self.stopped is None or self.stopped.done())

    def _check(self):
        if self.stopped is not None:
            assert self.stopped.done(), "the server does not stop"
        if self.wire.is_lost:
            return
        assert not self.wire.to_client
        assert not self.wire.unsent
        open_ids = [id for id, call in self._open_calls()]
        assert not open_ids, f"streams {open_ids} have not ended"
        for call in self.calls.values():
            if not call.is_reset and not self.is_stopping:
                assert call.status == 0
                for plan in call.plans:
                    assert call.answers[plan.name] == plan.expected(), plan.name
                once = [plan.name for plan in call.plans if plan.model in ("id", "once")]
                assert [name for name in call.order if name in once] == once

    def _check_nothing_is_left(self):
        assert not self.wire.protocol._sender.handlers
        assert (self.engine.capacity.request_count, self.engine.capacity.buffered_bytes) == (0, 0)
        assert not self.far.streams
        left = asyncio.all_tasks() - {asyncio.current_task(), self.stopped}
        assert not left, left
