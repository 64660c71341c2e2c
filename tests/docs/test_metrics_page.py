"""docs/reference/metrics.md beside what a server tells whoever scrapes it."""

import re
import urllib.request
from pathlib import Path

from server_thread import server_in_thread

from inferd.config.server import ServerConfig

ROOT = Path(__file__).parents[2]
ROWS = dict(
    re.findall(
        r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE
    )
)
MODEL = """
import inferd, numpy as np
from numpy.typing import NDArray

@inferd.model
def m(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x
"""


def test_what_a_server_writes_is_on_the_page(tmp_path):
    (tmp_path / "models.py").write_text(MODEL)
    config = ServerConfig(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_repository=(str(tmp_path / "models.py"), str(ROOT / "examples/digits/models")),
        cache_config=("local,size=1000000",),
        payload_log=str(tmp_path / "payloads.jsonl"),
        metrics_config=("histogram_latencies=true", "summary_latencies=true"),
    )
    with server_in_thread(config) as server:
        url = f"http://127.0.0.1:{server.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            text = answer.read().decode()
    found = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert len(found) > 50
    assert found.items() <= ROWS.items()
