"""What is left to gain: the C floor, a bare Python loop, one with the model, and inferd, by turns.

    .venv/bin/python bench/least.py [--seconds 2] [--repeats 7]

It measures bin/simple. There is no target: it shows which part of the distance to the floor is due
to Python's event loop and ONNX Runtime's own call, and which to inferd.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import make_models
import numpy as np
from cases import MODELS, SIZES, Case, encode, make_inputs
from load import check_once, measure
from servers import Server, compile_floor, free_port, run_floor, run_inferd, run_server

CASE = Case("bin", "simple")


def main() -> int:
    """Measure and print; return 1 if an answer was lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    inputs = make_inputs(CASE.kind, SIZES[CASE.kind][0], np.random.default_rng(7))
    request = encode(CASE, MODELS[CASE.kind], "", inputs)
    found: dict[tuple[str, int], list[float]] = {}
    lost = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        model = make_models.simple_model()
        make_models.write_model(work / "models", "simple", make_models.SIMPLE_CONFIG, model)
        inferd = stack.enter_context(run_inferd(work / "models", work))
        answer_bytes = check_once(inferd, CASE, request)
        floor = run_floor(compile_floor("cc", work), answer_bytes, work)
        takers = [stack.enter_context(floor)]
        model_file = str(work / "models" / "simple" / "1" / "model.onnx")
        for label, extra in (("loop", []), ("loop + model", [model_file])):
            takers.append(_bare_loop(stack, label, answer_bytes, extra, work))
        takers.append(inferd)
        for repeat in range(given.repeats):
            for connections in CASE.concurrencies:
                for server in takers[::-1] if repeat % 2 else takers:
                    row, _ = measure(server, CASE, [request], connections, given.seconds)
                    found.setdefault((server.label, connections), []).append(row.cpu_us)
                    lost += row.bad
    print(f"{'row':16}{'connections':>12}{'us':>8}{'/ floor':>9}")
    for (label, connections), cpu_us in found.items():
        floors = found["floor", connections]
        ratio = statistics.median(mine / least for mine, least in zip(cpu_us, floors, strict=True))
        print(f"{label:16}{connections:12}{statistics.median(cpu_us):8.1f}{ratio:9.2f}")
    return int(lost > 0)


def _bare_loop(
    stack: ExitStack, label: str, answer_bytes: int, extra: list[str], work: Path
) -> Server:
    """Start `bare_loop.py`."""
    port = free_port()
    program = Path(__file__).resolve().parent / "bare_loop.py"
    command = [sys.executable, str(program), str(port), str(answer_bytes), *extra]
    log = work / f"{label}.log"
    return stack.enter_context(run_server(label, command, (port, 0), log))


if __name__ == "__main__":
    sys.exit(main())
