"""A small server of the page with made-up events: states that a real server is seldom in.

    python tests/browser/fake_site.py --port 8900 --server http://127.0.0.1:8000

It gives the page's files, GET /ui/about and GET /ui/events as the server does, and passes what is
below /v2 to a real server, if there is one. `Fake` says what the events tell: a test changes it.
"""

import argparse
import http.client
import json
import math
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import inferd

STATIC = Path(inferd.__file__).parent / "ui/static"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
MS = 1_000_000
PLATFORMS = ("onnxruntime_onnx", "pytorch_libtorch", "tensorflow_savedmodel", "python", "ensemble")


def row_of(time_ms, rng):
    """One second of a busy server."""
    wave = 1 + 0.4 * math.sin(time_ms / 60_000) + rng.random() * 0.2
    fails = rng.random() < 0.1
    return {
        "time": time_ms,
        "success": int(1700 * wave),
        "failure": rng.randrange(1, 6) if fails else 0,
        "refused": 0,
        "p50": int(0.8 * MS * wave),
        "p95": int(2.4 * MS * wave),
        "p99": int(6 * MS * wave * (1 + rng.random())),
        "cpu": 0.9 * wave,
        "memory": int(610e6 + 20e6 * wave),
        "pending": int(12 * wave),
        "queued": int(4 * wave * rng.random()),
        "connections": 64,
        "gpu": 0.6 * min(1, wave / 1.4),
        "gpu_memory": int(9e9),
    }


def columns(rows):
    """Rows as one list for each name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def model_row(number, name, version="1", *, state="READY", reason="", platform=None):
    """A row of the topic models; `number` decides its figures."""
    rng = random.Random(number)
    busy = state == "READY" and number % 7 != 3
    mean = int(rng.random() * 3 * MS + 200_000)
    return {
        "name": name,
        "version": version,
        "state": state,
        "reason": reason,
        "platform": platform or PLATFORMS[number % len(PLATFORMS)],
        "backend": "onnxruntime",
        "instances": 1 + number % 3 if state == "READY" else 0,
        "max_batch_size": 8 * (number % 3),
        "joined": ("joined", "alone", "compared", "")[number % 4],
        "joined_reason": "every row depends on itself alone",
        "success": rng.randrange(200_000) if busy else 0,
        "failure": rng.randrange(30) if busy and number % 5 == 0 else 0,
        "refused": 0,
        "rate": rng.random() * 300 if busy else 0,
        "queue": mean // 4 if busy else None,
        "input": mean // 20 if busy else None,
        "infer": mean if busy else None,
        "output": mean // 30 if busy else None,
        "p50": mean if busy else None,
        "p95": mean * 3 if busy else None,
        "p99": mean * 5 if busy else None,
        "cache_hit": 900 if number % 6 == 0 else 0,
        "cache_miss": 100 if number % 6 == 0 else 0,
        "batch_sizes": [[1, 400], [2, 210], [4, 90], [8, 33]] if busy else [],
        "memory": rng.randrange(10**9) if busy else None,
        "last": int(time.time() * 1000) - rng.randrange(5000) if busy else 0,
    }


class Fake:
    """What the events say, and who may hear them."""

    def __init__(self):
        self.mode = "full"
        self.key = None  # that Authorization must have
        self.state, self.why = "ready", ""
        self.gpus = [
            {"name": "NVIDIA H100", "utilization": 0.55, "memory": 9e9, "memory_total": 80e9}
        ]
        self.rows = [model_row(number, f"model_{number:02}") for number in range(14)]
        self.is_new = False  # its first second is not over: no row, no history
        self.log = []
        self.acts = []
        self.minute_success = 90_000
        self.refuses = ""  # the words with which streams are refused
        self.is_broken = False  # streams end, and new ones are not answered
        self.changed = threading.Condition()

    def tick(self):
        """The event tick of now."""
        now = int(time.time()) * 1000
        states = [(row["state"], row["reason"]) for row in self.rows]
        row = row_of(now, random.Random(now))
        if not self.gpus:
            row |= {"gpu": None, "gpu_memory": None}
        server = {"name": "inferd", "version": "0.1.0", "compiled": True, "id": None}
        server |= {"started": now - 7_400_000, "state": self.state, "why": self.why}
        process = {"pid": 4242, "started": now - 7_400_000, "cpu": 0.8, "memory": 620_000_000}
        process |= {"connections": 64, "pending": 12, "keeps_history": True}
        return {
            "time": now,
            "row": None if self.is_new else row,
            "server": server,
            "models": {
                "ready": sum(state == "READY" for state, _ in states),
                "loading": sum(state == "LOADING" for state, _ in states),
                "failed": sum(state == "UNAVAILABLE" and reason != "" for state, reason in states),
                "unloaded": sum(state == "UNAVAILABLE" and not reason for state, reason in states),
            },
            "processes": [process, process | {"pid": 4243, "cpu": 0.6}],
            "lost_history": False,
            "gpus": self.gpus,
        }

    def history(self):
        """The event history: ten minutes of seconds, an hour of minutes."""
        if self.is_new:
            return {"second": {"time": []}, "minute": {"time": []}}
        now = int(time.time()) * 1000
        rng = random.Random(7)
        minute = now // 60_000 * 60_000
        return {
            "second": columns([row_of(now - 1000 * i, rng) for i in range(600, 0, -1)]),
            "minute": columns(
                [
                    row_of(minute - 60_000 * i, rng) | {"success": self.minute_success}
                    for i in range(60, 0, -1)
                ]
            ),
        }

    def model(self, name, version):
        """The event model."""
        row = next((one for one in self.rows if one["name"] == name), None)
        row = row or model_row(2, name, version)
        bounds = [int(2 ** (14 + i / 8)) for i in range(97)]
        counts = [int(4000 * math.exp(-(((i - 44) / 9) ** 2))) for i in range(96)]
        now = int(time.time() * 1000)
        return row | {
            "latency": {"bounds": bounds, "counts": counts, "error": 0.0625},
            "queue_latency": {"bounds": bounds, "counts": counts, "error": 0.0625},
            "failures": {"REJECTED": 2, "CANCELED": 1, "BACKEND": 4, "OTHER": 0},
            "errors": [
                {
                    "time": now - 60_000 * i,
                    "id": f"job-{i}",
                    "text": "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : a shape did not fit",
                    "reason": "BACKEND",
                    "took": 1_200_000 * (i + 1),
                }
                for i in range(4)
            ],
            "slow": self.requests()[:6],
            "sequences": 3,
            "pending": 4,
            "queued": 1,
            "steps": [],
        }

    def requests(self):
        """Rows of the topic requests."""
        now = int(time.time() * 1000)
        rows = []
        for i in range(40):
            queue, infer = 300_000 * (i % 5 + 1), 900_000 * (i % 7 + 1)
            failed = i % 9 == 4
            rows.append(
                {
                    "time": now - 900 * i,
                    "model": f"model_{i % 14:02}",
                    "version": "1",
                    "id": f"job-{i}" if i % 3 else "",
                    "status": "failed" if failed else "ok",
                    "error": "the queue was full" if failed else "",
                    "took": queue + infer + 90_000,
                    "queue": queue,
                    "input": 40_000,
                    "infer": infer,
                    "output": 30_000,
                    "handover": 20_000,
                    "batch_size": i % 4 + 1,
                    "pid": 4242,
                }
            )
        return rows

    def lines(self):
        """Rows of the topic log."""
        now = int(time.time() * 1000)
        texts = [
            ("info", "inferd is live at http://127.0.0.1:8000 and 127.0.0.1:8001"),
            ("info", "model 'digits', version 1, is ready after 0.21 s"),
            ("warning", "model 'slow' keeps requests waiting: its queue has 40"),
            ("error", "model 'broken' did not load: the file ends after 12 bytes"),
        ]
        given = [
            {"time": now - 2000 * (60 - i), "pid": 4242, "source": "engine.loading:120"}
            | dict(zip(("level", "text"), texts[i % 4], strict=True))
            for i in range(60)
        ]
        return given + self.log


class Handler(BaseHTTPRequestHandler):
    """One request of a browser."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    @property
    def fake(self):
        return self.server.fake

    def answer(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        url = urlsplit(self.path)
        path = unquote(url.path)
        if path == "/ui":
            self.answer(308, b"", Location="ui/")
        elif path == "/ui/about":
            keys = ["authorization", "x-api-key"] if self.fake.key else []
            about = {"mode": self.fake.mode, "keys": bool(keys), "key_headers": keys}
            self.answer(200, about | {"unlock": True})
        elif path == "/ui/events":
            self.events({name: value[0] for name, value in parse_qs(url.query).items()})
        elif path.startswith("/ui/"):
            self.file(path.removeprefix("/ui/").removeprefix("static/") or "index.html")
        else:
            self.forward()

    def do_POST(self):
        if not self.path.startswith("/ui/"):
            self.forward()
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/ui/unlock":
            right = body["token"] == "right"
            self.answer(
                200 if right else 403,
                {"session": "s1"} if right else {"error": "this token is not valid"},
            )
        else:
            self.fake.acts.append(body)
            self.answer(200, {"done": f"{body['act']} is done"})

    def file(self, name):
        path = STATIC / name
        if not path.is_file():
            self.answer(404, {"error": "there is no such file"})
            return
        self.answer(200, path.read_bytes(), KINDS.get(path.suffix, "text/plain; charset=utf-8"))

    def forward(self):
        where = self.server.behind
        if where is None and self.path == "/v2/repository/index":
            self.answer(200, [])
            return
        if where is None:
            self.answer(404, {"error": "there is no server behind this one"})
            return
        connection = http.client.HTTPConnection(where.hostname, where.port)
        size = int(self.headers.get("Content-Length") or 0)
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        connection.request(self.command, self.path, self.rfile.read(size), headers)
        got = connection.getresponse()
        self.send_response(got.status)
        for name, value in got.getheaders():
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := got.read1(65536):
            self.wfile.write(piece)
        self.close_connection = True
        connection.close()

    def events(self, query):
        fake = self.fake
        if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
            self.answer(401, {"error": "this call needs an API key"})
            return
        if fake.refuses:
            self.answer(503, {"error": fake.refuses})
            return
        if fake.is_broken:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        topics = query["topics"].split(",")
        try:
            first = True
            while not fake.is_broken:
                for topic in topics:
                    self.tell(topic, query, first)
                first = False
                if "once" in query:
                    return
                with fake.changed:
                    fake.changed.wait(1)
        except OSError:
            return

    def tell(self, topic, query, first):
        fake = self.fake
        if topic == "overview":
            if first:
                self.event("history", fake.history())
            self.event("tick", fake.tick())
        elif topic == "models":
            self.event("models", {"all": first, "rows": fake.rows, "gone": []})
        elif topic == "model":
            self.event("model", fake.model(query.get("model"), query.get("version")))
        elif topic == "log" and first:
            self.event("log", {"lines": fake.lines(), "dropped": 0})
        elif topic == "requests" and first:
            self.event("requests", {"rows": fake.requests(), "all": True})

    def event(self, name, data):
        self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()


class FakeSite(ThreadingHTTPServer):
    """The fake on a free port of this machine; `url` ends in /ui/."""

    daemon_threads = True

    def __init__(self, fake, port=0, server=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.fake, self.behind = fake, urlsplit(server) if server else None
        self.url = f"http://127.0.0.1:{self.server_address[1]}/ui/"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.fake.is_broken = True
        self.shutdown()
        self.server_close()


def main():
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--server")
    options = parser.parse_args()
    fake = Fake()
    fake.rows.append(
        model_row(
            50, "broken", state="UNAVAILABLE", reason="the file model.onnx ends after 12 bytes"
        )
    )
    site = FakeSite(fake, options.port, options.server)
    print(site.url, flush=True)  # noqa: T201
    site.serve_forever()


if __name__ == "__main__":
    main()
