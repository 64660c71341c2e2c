"""The conformance suite against two servers behind `inferd route`.

    python tests/support/conform_route.py

APART has the tests that cannot pass there, and why; docs/guide/scaling.md says the same. The exit
code is that of the suite.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from routed import route, servers

ROOT = Path(__file__).parents[2]
APART = {
    "each place has its own response cache": (
        "extensions/test_response_cache.py::test_an_equal_request_is_answered_without_the_model",
    ),
    "each place has its own queue": (
        "extensions/test_scheduling.py::test_of_two_in_a_queue_of_one_one_is_refused_at_once",
        "extensions/test_scheduling.py"
        "::test_of_two_in_a_queue_of_one_one_is_refused_at_once_over_grpc",
    ),
    "the older API's statistics and request ids are those of one place": (
        "trtis/test_http.py::test_request_ids_grow",
        "trtis/test_http.py::test_inference_count",
        "trtis/test_http.py::test_execution_count",
        "trtis/test_http.py::test_infer_stats",
        "trtis/test_http.py::test_statistics_agree",
    ),
    "HAProxy takes heads of up to its buffer": ("trtis/test_http.py::test_long_header",),
    "HAProxy itself answers what is no HTTP, and takes equal Host fields for one": (
        "spec/test_http.py::test_garbage_is_refused_or_dropped[GET /v2 HTTP/9.9\\r\\n\\r\\n]",
        "spec/test_http.py::test_two_hosts_are_refused[Host: a\\r\\nhost: a\\r\\n]",
        "trtis/test_http.py::test_no_http",
    ),
}


def main(arguments):
    """Run the suite with further `arguments` for pytest; return its exit code."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers(ROOT / "conformance/repos/v2", "--cache-config=local,size=1000000") as started,
        route(Path(folder), [one.place() for one in started]) as routed,
    ):
        routed.wait_known(*(one.name for one in started))
        command = [sys.executable, "-m", "pytest", "conformance", "-q"]
        command += [f"--url=http://127.0.0.1:{routed.http_port}"]
        command += [f"--grpc=127.0.0.1:{routed.grpc_port}"]
        for tests in APART.values():
            command += [f"--deselect={one}" for one in tests]
        return subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
