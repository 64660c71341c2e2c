"""The processes that listen on a port, and what they use."""

import os
import socket
import subprocess
import sys

from inferd.bench.cpu import cpu_seconds, is_here, processes_at

LISTEN = """
import os, socket, sys, time
one = socket.create_server(("127.0.0.1", 0))
while time.process_time() < 0.05:
    pass
if os.fork():
    print(one.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_process_that_listens_is_found_with_its_descendants():
    command = [sys.executable, "-c", LISTEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        found = processes_at("127.0.0.1", port)
        assert process.pid in found and len(found) == 2
        assert cpu_seconds(found) >= 0.04
        process.stdin.close()


def test_a_port_without_a_listener_and_another_machine_have_none():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert processes_at("127.0.0.1", one.getsockname()[1]) == []
        one.listen()
        # Other tests may have left this process a child, which counts, too.
        assert os.getpid() in processes_at("127.0.0.1", one.getsockname()[1])
        assert processes_at("192.0.2.1", one.getsockname()[1]) == []


def test_this_machine_is_known_by_its_addresses():
    assert is_here("localhost") and is_here("127.0.0.1") and not is_here("192.0.2.1")
    assert not is_here("no such host")


def test_a_process_that_has_ended_has_used_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert cpu_seconds([process.pid]) == 0
