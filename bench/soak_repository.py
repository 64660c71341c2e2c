"""Changes models in every possible way while requests keep coming, and checks each answer.

    python bench/soak_repository.py [--requests 60000] [--connections 12] [--seed 1]

Half of the requests go to a server in explicit mode, half to one in poll mode. Two models are
asked, over REST in JSON and binary and over gRPC. `steady` must always answer, and never with an
edition older than the newest one confirmed to serve when the request was sent. `guest` comes and
goes: it must answer while it is there and be unknown while it is not. Fails if a request fails that
should have succeeded, if an answer is wrong, if a change does not have its effect, or if the
server's memory or open files grow.
"""

import argparse
import asyncio
import base64
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from email.parser import BytesParser
from pathlib import Path

import cases
import grpc
import make_models
import numpy as np
import servers
from onnx import TensorProto, helper, numpy_helper
from servers import HOST, Server
from tritonclient.grpc import service_pb2 as pb

ANSWER_TIMEOUT_S = 30.0
CHANGE_TIMEOUT_S = 30.0
POLL_S = 0.2
GRPC_SHARE = 4  # one in this many connections speaks gRPC
GUEST_SHARE = 4  # one in this many requests is for the guest
RESIDENT_GROWTH_LIMIT_MB = 48
FILES_GROWTH_LIMIT = 32
STEADY, GUEST, SENT = "steady", "guest", "sent"
SERVICE = "/inference.GRPCInferenceService/"
Change = Callable[["Site"], Awaitable[None]]


class Unexpected(Exception):
    """A change did not have the effect it should have had."""


# --- models ---


def edition_model(edition: int) -> bytes:
    """Return a model with OUTPUT0 = INPUT0 + INPUT1 + edition, OUTPUT1 = INPUT0 - INPUT1."""
    names = ["INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"]
    infos = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N", 16]) for name in names]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["sum"]),
        helper.make_node("Add", ["sum", "edition"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    constant = numpy_helper.from_array(np.array([edition], np.int32), "edition")
    graph = helper.make_graph(nodes, "edition", infos[:2], infos[2:], [constant])
    return make_models.finish_model(graph)


def config_text(name: str, more: str = "", count: int = 1) -> str:
    """Return the config.pbtxt of an edition; a delay gathers requests into batches."""
    text = make_models.SIMPLE_CONFIG.replace('name: "simple"', f'name: "{name}"')
    text += "dynamic_batching { max_queue_delay_microseconds: 1000 }\n"
    return text.replace("count: 1", f"count: {count}") + more


@dataclass
class Folder:
    """One model's folder; files are put in place by renaming, so none is seen half written."""

    path: Path

    def put(self, relative: str, content: bytes | str) -> None:
        """Write a file."""
        target = self.path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.new")
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        new.rename(target)

    def add_version(self, number: int, content: bytes) -> None:
        """Put a whole version folder in its place."""
        new = self.path / f".new-{number}"
        new.mkdir(parents=True)
        (new / "model.onnx").write_bytes(content)
        new.rename(self.path / str(number))

    def versions(self) -> list[int]:
        """Return the existing version numbers."""
        return sorted(int(child.name) for child in self.path.iterdir() if child.name.isdigit())

    def drop_version(self, number: int) -> None:
        """Remove a version folder."""
        away = self.path / f".old-{number}"
        (self.path / str(number)).rename(away)
        shutil.rmtree(away)


# --- requests, and the answers they may get ---


@dataclass
class Truth:
    """What may be answered at this moment; `epoch` counts the changes of `guest`."""

    confirmed: int = 0
    newest: int = 0
    guest: str = "there"  # or "gone", or "moving"
    epoch: int = 0

    def set_guest(self, state: str) -> None:
        """Record the state of the guest."""
        self.guest, self.epoch = state, self.epoch + 1


@dataclass
class Tally:
    """The outcomes and changes so far."""

    right: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


class Http:
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self, server: Server) -> None:
        self._port = server.port

    async def __aenter__(self) -> "Http":
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self._writer.close()
        await self._writer.wait_closed()

    async def send(self, verb: str, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer."""
        status, _, body = await self._exchange(verb, path, body, headers)
        return status, body

    async def infer(self, protocol: str, model: str, number: int, inputs: cases.Arrays) -> object:
        """Return the outputs, or the status of a refusal as text."""
        request = cases.encode(cases.Case(protocol, "simple"), model, _id(number), inputs)
        status, headers, body = await self._exchange(
            "POST", request.path, request.body, request.headers
        )
        if status != 200:
            return f"HTTP {status}: {body[:200]!r}"
        return cases.decode_http(headers, body)[1]

    async def _exchange(self, verb: str, path: str, body: bytes, headers: dict[str, str]):  # noqa: ANN202
        lines = [f"{verb} {path} HTTP/1.1", f"Host: {HOST}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        self._writer.write("\r\n".join(lines).encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status_line, _, rest = head.partition(b"\r\n")
        found = BytesParser().parsebytes(rest, headersonly=True)
        content = await self._reader.readexactly(int(found["Content-Length"]))
        return int(status_line.split()[1]), found, content


class Grpc:
    """One gRPC channel."""

    def __init__(self, server: Server) -> None:
        self._target = f"{HOST}:{server.grpc_port}"

    async def __aenter__(self) -> "Grpc":
        """Open the channel, which connects when first needed."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(self._target, options=options)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self._channel.close()

    async def call(self, rpc: str, message: bytes) -> bytes:
        """Return the answer of one call. Raises AioRpcError."""
        call = self._channel.unary_unary(SERVICE + rpc, None, None)
        return await call(message, timeout=ANSWER_TIMEOUT_S)

    async def infer(self, _protocol: str, model: str, number: int, inputs: cases.Arrays) -> object:
        """Return the outputs, or the status of a refusal as text."""
        request = cases.encode(cases.Case("grpc", "simple"), model, _id(number), inputs)
        try:
            return cases.decode_grpc(await self.call("ModelInfer", request.body[5:]))[1]
        except grpc.aio.AioRpcError as error:
            return f"gRPC {error.code().name}: {error.details()}"


def _id(number: int) -> str:
    return f"{number:0{cases.ID_LENGTH}d}"


def is_unknown(outcome: object) -> bool:
    """Return whether a refusal says that there is no such model."""
    return isinstance(outcome, str) and outcome.startswith(("HTTP 404", "gRPC NOT_FOUND"))


def edition_of(inputs: cases.Arrays, outputs: cases.Arrays) -> int | None:
    """Return the edition that answered, None if the answer is wrong."""
    a, b = inputs["INPUT0"].ravel(), inputs["INPUT1"].ravel()
    if sorted(outputs) != ["OUTPUT0", "OUTPUT1"] or not np.array_equal(outputs["OUTPUT1"], a - b):
        return None
    differences = outputs["OUTPUT0"] - (a + b)
    return int(differences[0]) if len(set(differences.tolist())) == 1 else None


def fault_of(truth: Truth, before: Truth, model: str, inputs: cases.Arrays, outcome: object) -> str:
    """Return what is wrong with an outcome, or ""; `before` is the truth at the time of sending."""
    if model == GUEST:
        is_settled = before.epoch == truth.epoch and truth.guest != "moving"
        if not is_settled and isinstance(outcome, str):
            is_fair = is_unknown(outcome) or outcome.startswith(("HTTP 503", "gRPC UNAVAILABLE"))
            return "" if is_fair else f"the guest, on its way, answers {outcome!r}"
        if is_settled and truth.guest == "gone":
            return "" if is_unknown(outcome) else f"the guest was gone, and answers {outcome!r}"
    if isinstance(outcome, str):
        return f"a request that should have succeeded: {outcome}"
    edition = edition_of(inputs, outcome)  # type: ignore[arg-type]
    if edition is None:
        return f"wrong values: {outcome!r}"
    if model == STEADY and not before.confirmed <= edition <= truth.newest:
        return f"edition {edition}, expected {before.confirmed} to {truth.newest}"
    return ""


async def run_connection(
    server: Server, index: int, numbers: Iterator[int], truth: Truth, tally: Tally
) -> None:
    """Send one request after the other until there are no `numbers` left."""
    random_ = np.random.default_rng(index)
    speaks_grpc = index % GRPC_SHARE == 0
    async with Grpc(server) if speaks_grpc else Http(server) as connection:
        for number in numbers:
            model = GUEST if number % GUEST_SHARE == 0 else STEADY
            protocol = "grpc" if speaks_grpc else ("json", "bin")[number % 2]
            inputs = cases.make_inputs("simple", int(random_.integers(1, 9)), random_)
            before = Truth(truth.confirmed, truth.newest, truth.guest, truth.epoch)
            started = time.monotonic()
            try:
                outcome: object = await asyncio.wait_for(
                    connection.infer(protocol, model, number, inputs), ANSWER_TIMEOUT_S
                )
            except (OSError, EOFError, TimeoutError) as error:
                tally.wrong.append(f"{protocol} {model}: lost, {error!r}")
                return
            tally.slowest_s = max(tally.slowest_s, time.monotonic() - started)
            fault = fault_of(truth, before, model, inputs, outcome)
            if fault:
                tally.wrong.append(f"{protocol} {model} {number}: {fault}")
            else:
                tally.right["unknown" if isinstance(outcome, str) else protocol] += 1


# --- a site: one server, its repository, and what is known about it ---


class Site:
    """One server in one mode, and the means to change its models."""

    def __init__(self, server: Server, root: Path, mode: str, http: Http, rpc: Grpc) -> None:
        self.mode = mode
        self.root = root
        self.steady, self.guest = Folder(root / STEADY), Folder(root / GUEST)
        self.truth = Truth()
        self.http, self.rpc = http, rpc
        self.server = server
        self._editions = itertools.count(1)
        self._calls = itertools.count()

    def next_edition(self) -> bytes:
        """Return a model of a new edition, which may serve from now on."""
        self.truth.newest = next(self._editions)
        return edition_model(self.truth.newest)

    async def apply(self, model: str = STEADY, *, fails: bool = False) -> None:
        """Have the server load what is in the repository, or wait until it has.

        With `fails` the change is broken: the server must refuse it and go on as before.
        """
        if self.mode == "explicit":
            is_loaded = await self.load(model)
            if is_loaded == fails:
                msg = f"the load of {model} {'succeeded' if is_loaded else 'failed'}"
                raise Unexpected(msg)
        elif fails:
            await asyncio.sleep(3 * POLL_S)
        else:
            await self._until_seen(model)
        if model == STEADY and not fails:
            self.truth.confirmed = self.truth.newest

    async def load(self, model: str, **parameters: str | bytes) -> bool:
        """Load over REST or gRPC, by turns; return whether it succeeded."""
        if next(self._calls) % 2:
            return await self._control("Load", model, parameters)
        texts = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in parameters.items()
        }
        body = json.dumps({"parameters": texts}).encode() if texts else b""
        status, _ = await self.http.send("POST", f"/v2/repository/models/{model}/load", body)
        return status == 200

    async def unload(self, model: str) -> None:
        """Unload over REST or gRPC, by turns."""
        if next(self._calls) % 2:
            is_done = await self._control("Unload", model, {})
        else:
            path = f"/v2/repository/models/{model}/unload"
            is_done = (await self.http.send("POST", path, b""))[0] == 200
        if not is_done:
            msg = f"the unload of {model} failed"
            raise Unexpected(msg)

    async def state(self, model: str) -> str:
        """Return the state of the model's newest version, "" if it is not in the index."""
        _, body = await self.http.send("POST", "/v2/repository/index", b"")
        rows = [row for row in json.loads(body) if row["name"] == model and "state" in row]
        return max(rows, key=lambda row: int(row.get("version", -1)))["state"] if rows else ""

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until `condition()` holds. Raises Unexpected after CHANGE_TIMEOUT_S."""
        deadline = time.monotonic() + CHANGE_TIMEOUT_S
        while not await condition():
            if time.monotonic() > deadline:
                msg = f"{what} did not come about"
                raise Unexpected(msg)
            await asyncio.sleep(0.01)

    async def _control(self, verb: str, model: str, parameters: dict[str, str | bytes]) -> bool:
        message = getattr(pb, f"RepositoryModel{verb}Request")(model_name=model)
        for key, value in parameters.items():
            choice = "bytes_param" if isinstance(value, bytes) else "string_param"
            setattr(message.parameters[key], choice, value)
        try:
            await self.rpc.call(f"RepositoryModel{verb}", message.SerializeToString())
        except grpc.aio.AioRpcError:
            return False
        return True

    async def _until_seen(self, model: str) -> None:
        async def is_seen() -> bool:
            if model != STEADY:
                return await self.state(model) == "READY"
            inputs = cases.make_inputs("simple", 1, np.random.default_rng(0))
            outcome = await self.http.infer("bin", STEADY, 0, inputs)
            return isinstance(outcome, dict) and edition_of(inputs, outcome) == self.truth.newest

        await self.until(is_seen, f"the change of {model}")


# --- the kinds of change ---


async def new_version(site: Site) -> None:
    """Add a version with a higher number, which takes over."""
    site.steady.add_version(site.steady.versions()[-1] + 1, site.next_edition())
    await site.apply()


async def new_file(site: Site) -> None:
    """Replace the file of the serving version."""
    site.steady.put(f"{site.steady.versions()[-1]}/model.onnx", site.next_edition())
    await site.apply()


async def older_file(site: Site) -> None:
    """Replace the file of the serving version by one with an older time stamp."""
    target = f"{site.steady.versions()[-1]}/model.onnx"
    content = site.next_edition()
    new = site.steady.path / ".older"
    new.write_bytes(content)
    os.utime(new, (10**9 + site.truth.newest, 10**9 + site.truth.newest))
    new.rename(site.steady.path / target)
    await site.apply()


async def old_version_removed(site: Site) -> None:
    """Remove the versions that do not serve."""
    for number in site.steady.versions()[:-1]:
        site.steady.drop_version(number)
    await site.apply()


async def version_that_serves_removed(site: Site) -> None:
    """Remove the serving version as soon as a new one is added."""
    last = site.steady.versions()[-1]
    site.steady.add_version(last + 1, site.next_edition())
    site.steady.drop_version(last)
    await site.apply()


async def other_config(site: Site) -> None:
    """Change a parameter, which reloads the version, and the file, so that it shows."""
    tag = f'parameters {{ key: "tag" value: {{ string_value: "{site.truth.newest}" }} }}\n'
    site.steady.put("config.pbtxt", config_text(STEADY, tag))
    site.steady.put(f"{site.steady.versions()[-1]}/model.onnx", site.next_edition())
    await site.apply()


async def other_instance_count(site: Site) -> None:
    """Configure more instances, then one again."""
    for count in (3, 1):
        site.steady.put("config.pbtxt", config_text(STEADY, count=count))
        await site.apply()


async def other_policy(site: Site) -> None:
    """Have all versions serve, then only the newest."""
    site.steady.add_version(site.steady.versions()[-1] + 1, site.next_edition())
    site.steady.put("config.pbtxt", config_text(STEADY, "version_policy { all {} }\n"))
    await site.apply()
    site.steady.put("config.pbtxt", config_text(STEADY))
    await site.apply()


async def stray_file(site: Site) -> None:
    """Add a file beside the versions, then remove it."""
    site.steady.put("labels.txt", "one\ntwo\n")
    await site.apply()
    (site.steady.path / "labels.txt").unlink()
    await site.apply()


async def cache_file(site: Site) -> None:
    """Add files that Python and editors leave behind, which are no change."""
    version = site.steady.path / str(site.steady.versions()[-1])
    (version / "__pycache__").mkdir(exist_ok=True)
    (version / "__pycache__" / "model.pyc").write_bytes(os.urandom(8))
    (site.steady.path / ".config.pbtxt.swp").write_bytes(os.urandom(8))
    await site.apply()


async def broken_config(site: Site) -> None:
    """Write a config.pbtxt that does not parse, then one that does."""
    site.steady.put("config.pbtxt", "this is no configuration {")
    await site.apply(fails=True)
    site.steady.put("config.pbtxt", config_text(STEADY))
    site.steady.put(f"{site.steady.versions()[-1]}/model.onnx", site.next_edition())
    await site.apply()


async def contradicting_config(site: Site) -> None:
    """Write a config.pbtxt that contradicts the model file, then one that does not."""
    site.steady.put("config.pbtxt", config_text(STEADY).replace("TYPE_INT32", "TYPE_FP32"))
    await site.apply(fails=True)
    site.steady.put("config.pbtxt", config_text(STEADY))
    await site.apply()


async def broken_file(site: Site) -> None:
    """Add a version whose file is not a model, then remove it."""
    number = site.steady.versions()[-1] + 1
    site.steady.add_version(number, b"this is no model")
    await site.apply(fails=True)
    site.steady.drop_version(number)
    await site.apply()


async def half_copied(site: Site) -> None:
    """Add a version whose file is incomplete, then complete it."""
    number, content = site.steady.versions()[-1] + 1, site.next_edition()
    site.steady.add_version(number, content[: len(content) // 2])
    await site.apply(fails=True)
    site.steady.put(f"{number}/model.onnx", content)
    await site.apply()


async def guest_leaves(site: Site) -> None:
    """Remove a model, which must become unknown, and put it back."""
    away = site.root.parent / "away"
    site.truth.set_guest("moving")
    site.guest.path.rename(away)
    if site.mode == "explicit":
        await site.unload(GUEST)

    async def is_gone() -> bool:
        return await site.state(GUEST) in ("", "UNAVAILABLE")

    await site.until(is_gone, "the guest's going")
    site.truth.set_guest("gone")
    await asyncio.sleep(POLL_S)
    site.truth.set_guest("moving")
    away.rename(site.guest.path)
    await site.apply(GUEST)
    site.truth.set_guest("there")


async def many_loads_at_once(site: Site) -> None:
    """Load one model, which has changed, from several clients at the same time."""
    site.steady.put(f"{site.steady.versions()[-1]}/model.onnx", site.next_edition())
    async with asyncio.TaskGroup() as group:
        loads = [group.create_task(_load_alone(site)) for _ in range(8)]
    if not all(load.result() for load in loads):
        msg = "one of many loads failed"
        raise Unexpected(msg)
    site.truth.confirmed = site.truth.newest


async def _load_alone(site: Site) -> bool:
    async with Http(site.server) as http:
        return (await http.send("POST", f"/v2/repository/models/{STEADY}/load", b""))[0] == 200


async def config_sent(site: Site) -> None:
    """Load with a configuration in the request, with a broken one, and with none."""
    text = json.dumps({"max_batch_size": 8, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]})
    for parameters in ({"config": text}, {"config": "{"}, {}):
        is_loaded = await site.load(STEADY, **parameters)
        if is_loaded != (parameters.get("config") != "{"):
            msg = f"a load with {parameters}: {is_loaded}"
            raise Unexpected(msg)


async def model_sent(site: Site) -> None:
    """Load a whole model from the request, check its answer and unload it."""
    files = {"file:1/model.onnx": edition_model(-7), "config": '{"max_batch_size": 8}'}
    if not await site.load(SENT, **files):
        msg = "the model that was sent did not load"
        raise Unexpected(msg)
    inputs = cases.make_inputs("simple", 2, np.random.default_rng(0))
    outcome = await site.http.infer("bin", SENT, 0, inputs)
    if not isinstance(outcome, dict) or edition_of(inputs, outcome) != -7:
        msg = f"the model that was sent answers {outcome!r}"
        raise Unexpected(msg)
    await site.unload(SENT)


async def hostile_loads(site: Site) -> None:
    """Try to load what is not a model: paths, a link that leads out, an unknown name."""
    link = site.root / "link"
    link.symlink_to(site.root.parent / "outside")
    for name in ("..%2Foutside", "%2Fetc", "nobody", "link"):
        path = f"/v2/repository/models/{name}/load"
        status, body = await site.http.send("POST", path, b"")
        if status not in (400, 500) or str(site.root).encode() in body:
            msg = f"a load of {name}: {status} {body!r}"
            raise Unexpected(msg)
    link.unlink()


CHANGES: list[Change] = [
    new_version,
    new_file,
    older_file,
    old_version_removed,
    version_that_serves_removed,
    other_config,
    other_instance_count,
    other_policy,
    stray_file,
    cache_file,
    broken_config,
    contradicting_config,
    broken_file,
    half_copied,
    guest_leaves,
]
BY_REQUEST: list[Change] = [many_loads_at_once, config_sent, model_sent, hostile_loads]


async def change_on(site: Site, tally: Tally, seed: int, is_over: asyncio.Event) -> None:
    """Make one change after the other, each kind equally often, until `is_over`."""
    kinds = CHANGES + BY_REQUEST * (site.mode == "explicit")
    order = random.Random(seed)
    while not is_over.is_set():
        for change in order.sample(kinds, len(kinds)):
            try:
                await change(site)
            except Unexpected as error:
                tally.wrong.append(f"{change.__name__}: {error}")
                return
            tally.changes[change.__name__] += 1
            if is_over.is_set() and len(tally.changes) == len(kinds):
                return


# --- one mode ---


def prepare(root: Path) -> None:
    """Write the two models, and one outside the repository."""
    for name in (STEADY, GUEST, "../outside"):
        folder = Folder(root / name)
        folder.put("config.pbtxt", config_text(folder.path.name))
        folder.add_version(1, edition_model(0))


@dataclass
class Use:
    """The resources that the server uses."""

    memory_mb: float = 0.0
    files_count: int = 0

    @classmethod
    def of(cls, server: Server) -> "Use":
        """Return the current use of `server`."""
        memory_mb = servers.resident_bytes(server.pid) / 2**20
        return cls(memory_mb, len(os.listdir(f"/proc/{server.pid}/fd")))


def counted(stop: int, server: Server, uses: list[Use]) -> Iterator[int]:
    """Yield the numbers up to `stop`; record the server's use after a third and at the end."""
    for number in range(1, stop + 1):
        if number == stop // 3:
            uses.append(Use.of(server))
        yield number
    uses.append(Use.of(server))


async def soak(
    server: Server, root: Path, mode: str, uses: list[Use], options: argparse.Namespace
) -> Tally:
    """Send half of the requests while models change; return the tally."""
    tally = Tally()
    async with Http(server) as http, Grpc(server) as rpc:
        site = Site(server, root, mode, http, rpc)
        numbers = counted(options.requests // 2, server, uses)
        is_over = asyncio.Event()
        changing = asyncio.create_task(change_on(site, tally, options.seed, is_over))
        async with asyncio.TaskGroup() as group:
            for index in range(options.connections):
                group.create_task(run_connection(server, index, numbers, site.truth, tally))
        is_over.set()
        await changing
    return tally


def run_mode(mode: str, work: Path, options: argparse.Namespace) -> bool:
    """Soak a server in one mode, print the outcomes, and return whether all was well."""
    root = work / mode / "models"
    prepare(root)
    flags = [f"--model-control-mode={mode}"]
    flags += ["--load-model=*"] if mode == "explicit" else [f"--repository-poll-secs={POLL_S}"]
    with servers.run_inferd(root, work, flags=flags) as server:
        uses: list[Use] = []
        tally = asyncio.run(soak(server, root, mode, uses, options))
    memory_mb = uses[1].memory_mb - uses[0].memory_mb
    files_count = uses[1].files_count - uses[0].files_count
    least = min(tally.changes.values(), default=0)
    print(f"{mode}: {tally.right.total()} right answers to {options.requests // 2} requests")
    print("  " + ", ".join(f"{count} {what}" for what, count in sorted(tally.right.items())))
    print(f"  {tally.changes.total()} changes of {len(tally.changes)} kinds, {least} at least")
    print(f"  wrong {len(tally.wrong)}, slowest {tally.slowest_s:.2f} s")
    print(f"  in the last two thirds: memory {memory_mb:+.0f} MB, open files {files_count:+d}")
    for fault in tally.wrong[:10]:
        print(f"  WRONG: {fault}", file=sys.stderr)
    is_steady = memory_mb <= RESIDENT_GROWTH_LIMIT_MB and files_count <= FILES_GROWTH_LIMIT
    is_whole = tally.right.total() == options.requests // 2 and least > 0
    return is_steady and is_whole and not tally.wrong


def main() -> int:
    """Soak both modes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--connections", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = [run_mode(mode, Path(name), options) for mode in ("explicit", "poll")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
