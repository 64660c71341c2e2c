"""What logs of requests cost: the same server with and without them, by turns in one run.

    .venv/bin/python bench/logs.py [--quick] [--seconds 2] [--repeats 15] [--out FILE]

The access log writes text to a file; it may cost a microsecond per small request. The payload log
takes 1 % of 600 KB requests, with their answers, to a file and to a receiver over HTTP, whose CPU
does not count; it may cost 2 %. Beside it stands what the system takes to write or send these bytes
for a program that does nothing else. Two servers without a log show what differs by itself. Each
pair of runs, one server after the other, gives one difference; a figure is the median of all.
"""

import argparse
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import cases
import make_models
import numpy as np
from cases import Case
from load import Row, check_once, measure_fixed
from servers import HOST, Server, run_inferd

SMALL = (Case("bin", "simple"), Case("json", "simple"), Case("grpc", "simple"))
LARGE = (Case("bin", "identity"), Case("grpc", "identity"))
CONNECTIONS = 16
ACCESS_LIMIT_US = 1.0
PAYLOAD_LIMIT = 0.02
SAMPLE = 0.01

Pairs = dict[tuple[str, str], list[tuple[Row, Row]]]
"""By kind of log and case: pairs of runs, (without it, with it)."""


@contextmanager
def receiver() -> Iterator[str]:
    """Take what is sent to it, and answer 204 to each request; yield its URL."""
    listener = socket.create_server((HOST, 0))

    def serve(client: socket.socket) -> None:
        left = b""
        with client:
            while True:
                while b"\r\n\r\n" not in left:
                    if not (more := client.recv(1 << 20)):
                        return
                    left += more
                head, _, left = left.partition(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split()[0])
                missing = size - len(left)
                left = left[size:]
                while missing > 0:
                    if not (more := client.recv(1 << 20)):
                        return
                    left, missing = more[missing:], missing - len(more)
                client.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://{HOST}:{listener.getsockname()[1]}/"
    listener.close()


def warm_up(server: Server, case: Case) -> None:
    """Send one request and check its answer."""
    inputs = cases.make_inputs(case.kind, cases.SIZES[case.kind][0], np.random.default_rng(7))
    check_once(server, case, cases.encode(case, cases.MODELS[case.kind], "", inputs))


def measure_all(work: Path, seconds: int, repeats: int) -> Pairs:
    """Return the runs of all cases."""
    repository = work / "models"
    make_models.write_model(
        repository, "simple", make_models.SIMPLE_CONFIG, make_models.simple_model()
    )
    make_models.write_model(repository, "identity_fp32", make_models.IDENTITY_CONFIG, None)
    pairs: Pairs = {}
    with ExitStack() as stack:
        url = stack.enter_context(receiver())
        sampled = [
            f"--payload-log-config=sample={SAMPLE}",
            "--payload-log-config=file-bytes=50000000",
        ]
        kinds: dict[str, list[str]] = {
            "off": [],
            "nothing": [],
            "access log": [f"--access-log={work / 'access.log'}"],
            "payloads, file": [f"--payload-log={work / 'payloads.jsonl'}", *sampled],
            "payloads, HTTP": [f"--payload-log={url}", *sampled],
        }
        servers = {}
        for name, flags in kinds.items():
            (work / name).mkdir()
            running = run_inferd(repository, work / name, flags=[*flags, "--allow-metrics=false"])
            servers[name] = stack.enter_context(running)
        plan = [(name, case) for name in ("nothing", "access log") for case in SMALL]
        plan += [(name, case) for name in ("nothing", *list(kinds)[3:]) for case in LARGE]
        for name, case in plan:
            for server in (servers["off"], servers[name]):
                warm_up(server, case)
        for repeat in range(repeats):
            for name, case in plan:
                turns = [servers["off"], servers[name]][:: -1 if repeat % 2 else 1]
                model = cases.MODELS[case.kind]
                rows = [measure_fixed(one, case, model, CONNECTIONS, seconds) for one in turns]
                first, second = rows[::-1] if repeat % 2 else rows
                pairs.setdefault((name, case.name), []).append((first, second))
    return pairs


def least_us(work: Path) -> dict[str, float]:
    """Return the CPU µs that the system takes for the payloads of a request in a hundred, by log.

    They are an input and an output of 600 KB, which take a third more as text in a file.
    """
    size, text_size, count = 600_000, 800_000, 100
    with ExitStack() as stack:
        parts = urlsplit(stack.enter_context(receiver()))
        connection = socket.create_connection((parts.hostname, parts.port))
        head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size
        body, text = bytes(size), bytes(text_size)

        def send() -> None:
            connection.sendall(head)
            connection.sendall(body)
            connection.recv(1000)

        file = stack.enter_context(open(work / "least", "wb", buffering=0))
        took = {}
        for name, write in (("payloads, file", lambda: file.write(text)), ("payloads, HTTP", send)):
            began_ns = time.thread_time_ns()
            for _ in range(count):
                write()
            took[name] = 2 * SAMPLE * (time.thread_time_ns() - began_ns) / count / 1000
        connection.close()
    return took


def verdict(name: str, off_us: float, more_us: float, least: Mapping[str, float]) -> str:
    """Return whether a log costs as little as it should."""
    if name == "access log":
        return f"at most {ACCESS_LIMIT_US} us: {'met' if more_us <= ACCESS_LIMIT_US else 'missed'}"
    if name in least:
        is_met = more_us <= PAYLOAD_LIMIT * off_us
        alone = f"the system alone {least[name] / off_us:+.1%}"
        return f"at most {PAYLOAD_LIMIT:.0%}: {'met' if is_met else 'missed'}; {alone}"
    return ""


def main() -> int:
    """Measure, print, and write all figures as JSON if asked; return 1 if an answer failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 s a run, three times")
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seconds, repeats = (1, 3) if given.quick else (given.seconds, given.repeats)
    with tempfile.TemporaryDirectory() as work:
        least = least_us(Path(work))
        pairs = measure_all(Path(work), seconds, repeats)
    print(f"{'log':16}{'case':16}{'off us':>9}{'more us':>9}{'more':>8}")
    for (name, case), rows in pairs.items():
        off_us = statistics.median(off.cpu_us for off, _ in rows)
        more_us = statistics.median(on.cpu_us - off.cpu_us for off, on in rows)
        busy = " busy" * any(row.is_noisy for pair in rows for row in pair)
        figures = f"{off_us:9.1f}{more_us:+9.2f}{more_us / off_us:+8.1%}"
        print(f"{name:16}{case:16}{figures}  {verdict(name, off_us, more_us, least)}{busy}")
    if given.out:
        document = {
            f"{name}, {case}": [[asdict(row) for row in pair] for pair in rows]
            for (name, case), rows in pairs.items()
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row.bad for rows in pairs.values() for pair in rows for row in pair))


if __name__ == "__main__":
    sys.exit(main())
