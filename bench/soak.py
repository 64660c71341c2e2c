"""Sends 200,000 requests in one run, a tenth of them invalid, and checks each answer.

    python bench/soak.py [--requests 200000] [--connections 64]

Fails if an answer is wrong, is missing or has an unexpected status, or if the server's memory grows
by more than RESIDENT_GROWTH_LIMIT_MB after the first tenth.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.parser import BytesParser
from pathlib import Path

import cases
import grpc
import make_models
import numpy as np
import servers
from cases import Case, Request
from servers import HOST, Server

ANSWER_TIMEOUT_S = 30.0
GRPC_SHARE = 8  # one in this many connections speaks gRPC
INVALID_SHARE = 10  # one in this many requests is invalid
RESIDENT_GROWTH_LIMIT_MB = 16
OK, INVALID, NOT_FOUND = "ok", "invalid", "not found"
HTTP_OUTCOMES = {200: OK, 400: INVALID, 404: NOT_FOUND}
GRPC_OUTCOMES = {
    grpc.StatusCode.INVALID_ARGUMENT: INVALID,
    grpc.StatusCode.NOT_FOUND: NOT_FOUND,
}


@dataclass(frozen=True)
class Question:
    """A request and its expected outcome."""

    id: str
    request: Request
    outcome: str


@dataclass
class Tally:
    """The outcomes and faults so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: int = 0


def make_question(number: int, protocol: str, random: np.random.Generator) -> Question:
    """Return request `number`; every INVALID_SHARE-th is wrong in one of four ways."""
    case = Case(protocol, "simple")
    request_id = f"{number:0{cases.ID_LENGTH}d}"
    inputs = cases.make_inputs("simple", int(random.integers(1, 9)), random)
    fault = (number // INVALID_SHARE) % 4 if number % INVALID_SHARE == 0 else None
    if fault == 0:
        return Question(request_id, cases.encode(case, "nobody", request_id, inputs), NOT_FOUND)
    if fault == 1:
        missing = {"INPUT0": inputs["INPUT0"]}
        return Question(request_id, cases.encode(case, "simple", request_id, missing), INVALID)
    if fault == 2:
        narrow = {name: np.ascontiguousarray(array[:, :15]) for name, array in inputs.items()}
        return Question(request_id, cases.encode(case, "simple", request_id, narrow), INVALID)
    request = cases.encode(case, "simple", request_id, inputs)
    if fault == 3 and protocol != "grpc":  # gRPC messages that do not parse never reach a model
        return Question(request_id, replace(request, body=request.body[:-3]), INVALID)
    return Question(request_id, request, OK)


def check_answer(question: Question, answer_id: str, outputs: cases.Arrays) -> str:
    """Return what is wrong with a successful answer, or ""."""
    if answer_id != question.id:
        return f"id {answer_id!r} instead of {question.id!r}"
    if not cases.is_right("simple", question.request.inputs, outputs):
        return f"wrong values for {question.id}"
    return ""


class HttpConnection:
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "HttpConnection":
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, question: Question) -> tuple[str, str]:
        """Return the outcome and what is wrong with the answer, or ""."""
        request = question.request
        lines = [f"POST {request.path} HTTP/1.1", f"Host: {HOST}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        lines.append(f"Content-Length: {len(request.body)}\r\n\r\n")
        self._writer.write("\r\n".join(lines).encode() + request.body)
        status_line, _, rest = (await self._reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        headers = BytesParser().parsebytes(rest, headersonly=True)
        body = await self._reader.readexactly(int(headers["Content-Length"]))
        status = int(status_line.split()[1])
        outcome = HTTP_OUTCOMES.get(status, f"HTTP {status}")
        if outcome != OK:
            return outcome, ""
        return OK, check_answer(question, *cases.decode_http(headers, body))


class GrpcConnection:
    """One gRPC channel."""

    def __init__(self, port: int) -> None:
        self._target = f"{HOST}:{port}"

    async def __aenter__(self) -> "GrpcConnection":
        """Open the channel, which connects when first needed."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(self._target, options=options)
        self._call = self._channel.unary_unary(cases.GRPC_METHOD, None, None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self._channel.close()

    async def ask(self, question: Question) -> tuple[str, str]:
        """Return the outcome and what is wrong with the answer, or ""."""
        try:
            message = await self._call(question.request.body[5:], timeout=ANSWER_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return GRPC_OUTCOMES.get(error.code(), f"gRPC {error.code().name}"), ""
        return OK, check_answer(question, *cases.decode_grpc(message))


async def run_connection(server: Server, number: int, numbers: Iterator[int], tally: Tally) -> None:
    """Send questions over one connection until there are none left."""
    speaks_grpc = number % GRPC_SHARE == 0
    random = np.random.default_rng(number)
    connect = GrpcConnection(server.grpc_port) if speaks_grpc else HttpConnection(server.port)
    async with connect as connection:
        for question_number in numbers:
            protocol = "grpc" if speaks_grpc else ("json", "bin")[question_number % 2]
            question = make_question(question_number, protocol, random)
            try:
                outcome, fault = await asyncio.wait_for(connection.ask(question), ANSWER_TIMEOUT_S)
            except (OSError, EOFError, TimeoutError):
                tally.lost += 1
                break  # the connection is gone; the others go on
            tally.outcomes[outcome] += 1
            if outcome != question.outcome:
                fault = f"{outcome} instead of {question.outcome} for {question.id} ({protocol})"
            if fault:
                tally.wrong.append(fault)


async def run_all(server: Server, start: int, stop: int, connections: int, tally: Tally) -> None:
    """Send the questions from `start` to `stop` over all connections concurrently."""
    numbers = iter(range(start, stop))
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(run_connection(server, number, numbers, tally))


def soak(server: Server, requests: int, connections: int) -> int:
    """Run the soak and print its result; return 1 if anything was wrong."""
    tally, warm = Tally(), requests // 10
    asyncio.run(run_all(server, 0, warm, connections, tally))
    before_mb = servers.resident_bytes(server.pid) / 2**20
    started = time.monotonic()
    asyncio.run(run_all(server, warm, requests, connections, tally))
    seconds = time.monotonic() - started
    after_mb = servers.resident_bytes(server.pid) / 2**20

    lost = requests - sum(tally.outcomes.values())
    print(f"{requests} requests over {connections} connections, {seconds:.0f} s")
    print("  " + ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.items()))
    print(f"  wrong {len(tally.wrong)}, lost {lost}")
    print(
        f"  resident memory {before_mb:.0f} MB after the first tenth, {after_mb:.0f} MB at the end"
    )
    for fault in tally.wrong[:10]:
        print(f"  WRONG: {fault}", file=sys.stderr)
    grown = after_mb - before_mb > RESIDENT_GROWTH_LIMIT_MB
    return 1 if tally.wrong or lost or grown else 0


def main() -> int:
    """Start a server, soak it, stop it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        config, model = make_models.SIMPLE_CONFIG, make_models.simple_model()
        make_models.write_model(work / "models", "simple", config, model)
        with servers.run_inferd(work / "models", work) as server:
            return soak(server, options.requests, options.connections)


if __name__ == "__main__":
    sys.exit(main())
