"""What it costs when the worker processes of one model are spread over several processes.

    python bench/instances.py [--processes 2] [--instances 4] [--connections 8] [--rounds 7]

A PyTorch model has --instances worker processes. A server of one process and one of --processes
serve it; both are up at once and are asked by turns, over gRPC on --connections for each process.
The unit is CPU microseconds per request: of all processes, and of the workers alone. The last
column is what the busiest and the idlest worker process used, relative to their mean. Run it where
PyTorch is: see bench/platforms.py.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from cases import Request
from load import run_h2load
from servers import Server, cpu_seconds, family, own_cpu_seconds, run_inferd

from platforms import EXAMPLES, request_of

MODEL = "digits_torchscript"
CONFIG = """
name: "{name}"
backend: "pytorch"
max_batch_size: 1
instance_group {{ count: {count} }}
parameters {{ key: "inferd_process" value {{ string_value: "worker" }} }}
"""


def workers_of(server: Server) -> list[int]:
    """Return the worker processes of its models."""
    command = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family(server.pid)}
    return sorted(pid for pid, text in command.items() if b"main(sys.argv" in text)


def turn(
    server: Server, request: Request, connections: int, seconds: int
) -> tuple[float, list[float]]:
    """Return CPU microseconds per request: of all processes, and of each worker process."""
    workers = workers_of(server)
    before = cpu_seconds(server.pid), [own_cpu_seconds(pid) for pid in workers]
    load = run_h2load(server.grpc_port, request, connections, seconds)
    used_s = cpu_seconds(server.pid) - before[0]
    if load.bad or not load.requests:
        sys.exit(f"{load.bad} of {load.requests} requests failed")
    busy_s = [own_cpu_seconds(pid) - at for pid, at in zip(workers, before[1], strict=True)]
    return used_s / load.requests * 1e6, [each / load.requests * 1e6 for each in busy_s]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    options = parser.parse_args()
    sys.path.append(str(EXAMPLES))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work, repository = Path(folder), Path(folder) / "models"
        import_module("to_pytorch").export(repository)
        digits = import_module("digits")
        text = CONFIG.format(name=MODEL, count=options.instances) + digits.TENSORS
        (repository / MODEL / "config.pbtxt").write_text(text)
        request = request_of(MODEL, digits.images()[:1])
        counts = (1, options.processes)
        flags = ["--model-control-mode=explicit", f"--load-model={MODEL}"]
        running = {
            count: stack.enter_context(
                run_inferd(
                    repository,
                    work,
                    flags=[*flags, f"--workers={count}"],
                    label=f"{count} processes",
                )
            )
            for count in counts
        }
        turns: dict[int, list[tuple[float, list[float]]]] = {count: [] for count in counts}
        for number in range(options.rounds + 1):
            for count in counts[::-1] if number % 2 else counts:
                one = turn(running[count], request, options.connections * count, options.seconds)
                if number:  # the first warms up
                    turns[count].append(one)
        print("| processes | CPU µs per request | ratio | workers' | workers, idlest and busiest |")
        print("| --- | --- | --- | --- | --- |")
        for count in counts:
            cpu = [cpu_us for cpu_us, _ in turns[count]]
            ratios = [mine / base for mine, (base, _) in zip(cpu, turns[1], strict=True)]
            each = [busy for _, busy in turns[count]]
            busy = [sum(used) for used in zip(*each, strict=True)]
            mean = statistics.mean(busy)
            print(
                f"| {count} | {statistics.median(cpu):.1f} ({min(cpu):.1f}-{max(cpu):.1f}) | "
                f"{statistics.median(ratios):.2f} | {statistics.median(map(sum, each)):.1f} | "
                f"{len(busy)}: "
                f"{min(busy) / mean:.2f} {max(busy) / mean:.2f} |"
            )


if __name__ == "__main__":
    main()
