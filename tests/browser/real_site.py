"""Real servers for the page, and clients that keep one busy."""

import http.client
import json
import threading
from contextlib import contextmanager, suppress

import numpy as np
from server_process import LIVE, ON_FREE_PORTS, Process

DIGIT = {
    "name": "image",
    "datatype": "FP32",
    "shape": [1, 8, 8],
    "data": np.arange(64).tolist(),
}
BODY = json.dumps({"inputs": [DIGIT]})
FAIL = json.dumps(
    {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["fail"]}]}
)


class Site:
    """A server that is live: `url` ends in /ui/, `link` unlocks it if --ui=full was given."""

    def __init__(self, process, live, link):
        self.process, self.port, self.grpc_port = process, int(live[1]), int(live[2])
        self.url = f"http://127.0.0.1:{self.port}/ui/"
        self.link = link


@contextmanager
def real_site(*arguments, full=False):
    """Yield a Site of `inferd serve`; nothing of it is left at the end."""
    process = Process(*arguments, *ON_FREE_PORTS, *(["--ui=full"] if full else []))
    drain = threading.Thread(target=lambda: list(process.process.stdout), daemon=True)
    try:
        live = process.wait_for(LIVE)
        link = process.wait_for(r"(http\S+#token=\S+)")[1] if full else None
        process.wait_for(
            r"^Dashboard "
        )  # the last line of what a server says when models are loaded
        drain.start()
        yield Site(process, live, link)
    finally:
        process.process.terminate()
        process.process.wait()
        if drain.ident:
            drain.join()
        process.process.stdout.close()


@contextmanager
def busy(site, clients=2):
    """Keep the model digits busy; one request of sixty is for a model that fails."""
    over = threading.Event()

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", site.port)
        number = 0
        while not over.wait(0.004):
            number += 1
            model, body = ("digits", BODY) if number % 60 else ("shout", FAIL)
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", f"/v2/models/{model}/infer", body)
                connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
