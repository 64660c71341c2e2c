"""A server in a thread of the tests' process."""

import contextlib

from inferd.server.thread import RunningServer


@contextlib.contextmanager
def server_in_thread(config):
    """Start a server, yield it when its models are loaded, and drain and stop it at the end."""
    running = RunningServer(config, ())
    try:
        yield running.server
    finally:
        running.end()
