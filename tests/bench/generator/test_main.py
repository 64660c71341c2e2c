"""The process of a generator, whoever started it."""

import subprocess
import sys
import time

import pytest
from small_site import SmallSite

from inferd.bench.plan import Address, Message, Plan, Point, StartPoint, packed

pytestmark = pytest.mark.slow


def test_one_that_nobody_reads_any_more_ends_without_a_word():
    command = [sys.executable, "-m", "inferd.bench.generator.main"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with SmallSite() as site, subprocess.Popen(command, **pipes) as process:
        message = Message(b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        process.stdin.write(packed(Plan(Address("127.0.0.1", site.port), [message])))
        process.stdin.flush()
        assert process.stdout.read(1)  # it is ready
        process.stdout.close()
        point = Point(concurrency=1, seconds=1, warmup_s=0)
        process.stdin.write(packed(StartPoint(point, time.monotonic_ns())))
        process.stdin.flush()
        assert process.stderr.read() == b"" and process.wait() == 1
