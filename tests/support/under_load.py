"""A server in a process of its own, and clients of it, while a test does something to it."""

import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from stop_under_load import started

PATIENCE_S = 60.0


@contextmanager
def serving(write, options):
    """Yield a server, its ports and the lines of its log, which are whole at the end.

    `write` puts its models into a folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        server, ports = started(folder, options)
        log = []
        reading = threading.Thread(target=lambda: log.extend(server.stderr))
        reading.start()
        try:
            yield server, ports, log
        finally:
            server.terminate()
            server.wait(timeout=60)
            reading.join()
            server.stdout.close()
            server.stderr.close()


@contextmanager
def asking(clients):
    """Have `clients` ask, each in a thread, until the event that they are called with is set."""
    over = threading.Event()
    threads = [threading.Thread(target=client, args=(over,)) for client in clients]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()


def wait_until_replaced(log):
    """Wait until all processes of a server have been replaced at least once, or for too long."""
    end_s = time.monotonic() + PATIENCE_S
    while "all processes have been replaced" not in "".join(log) and time.monotonic() < end_s:
        time.sleep(0.1)
