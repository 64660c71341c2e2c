"""What it costs to count a request that was answered, compiled: of this tree beside a revision.

    python bench/counting.py [REVISION]    # HEAD~1 by default; takes a minute

Both are compiled, inferd.observe.stats alone, and measured by turns: the median of ROUNDS each, in
ns, and the difference. A request is one that ran alone and waited before; with `slow`, somebody
keeps slow requests, which this one is not.
"""

import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = "inferd/observe/stats.py"
ROUNDS = 15

COMPILE = """
import sys, types
hook = types.SimpleNamespace(BuildHookInterface=object)  # that of a build, not needed here
sys.modules["hatchling.builders.hooks.plugin.interface"] = hook
sys.path.insert(0, sys.argv[2])
from compile_hook import _compile
from pathlib import Path
_compile([sys.argv[3]], Path(sys.argv[1]), Path(sys.argv[1]))
"""

MEASURE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from inferd.observe import stats
from inferd.core.request import InferRequest
assert stats.__file__.endswith(".so"), stats.__file__
request = InferRequest("m")
request.queued_ns, request.started_ns, request.ended_ns = 10**9, 10**9 + 9000, 10**9 + 310000
counts = stats.Counts()
if sys.argv[2] == "slow":
    counts.on_slow = lambda request, took_ns: None
    counts.slow_ns = 400_000
add = counts.add_success
def loop(times):
    for _ in times:
        add(request)
loop(range(100_000))
began = time.process_time_ns()
loop(range(1_000_000))
print((time.process_time_ns() - began) / 1e6)
"""


def main() -> None:
    """Compile both, measure, and print."""
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD~1"
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "old"), Path(folder, "new")
        archive = _run("git", "-C", str(ROOT), "archive", revision, "src/inferd")
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(old, filter="data")
        new.mkdir()
        _run("cp", "-r", str(ROOT / "src"), str(new))
        for tree in (old, new):
            _run(sys.executable, "-c", COMPILE, str(tree / "src"), str(ROOT / "tools"), MODULE)
        cases = {"before": (old, ""), "now": (new, ""), "now, slow": (new, "slow")}
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, (tree, way) in cases.items():
                found[name].append(float(_run(sys.executable, "-c", MEASURE, tree / "src", way)))
    before = statistics.median(found["before"])
    for name, all_ns in found.items():
        ns = statistics.median(all_ns)
        print(f"{name:<10} {ns:6.1f} ns  {ns - before:+6.1f} ns  x {ns / before:.2f}")


def _run(*command: str | Path) -> bytes:
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environ).stdout


if __name__ == "__main__":
    main()
