"""Answers of a gigabyte, and workers that end while they write one."""

import http.client
import json
import os

import numpy as np
import pytest
from serving import ONE_CONFIG
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.slow

GIGABYTE = 1 << 30
PIECE = 1 << 20
SPARE_BYTES = 256 << 20
"""So much a server may need beside the answer itself, which lies in shared memory."""

LARGE_CONFIG = ONE_CONFIG.replace("TYPE_INT32 dims: -1 }\noutput", "TYPE_INT64 dims: -1 }\noutput")

LARGE = """
    class TritonPythonModel:
        def execute(self, requests):
            count = int(requests[0].inputs()[0].as_numpy()[0])
            out = pb_utils.Tensor("OUT", np.full(count // 4, 7, np.int32))
            return [pb_utils.InferenceResponse([out])]
"""

BREAKS = """
    import mmap, os, socket, tempfile
    class TritonPythonModel:
        def execute(self, requests):
            how = int(requests[0].inputs()[0].as_numpy()[0])
            if how == 0:
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.int32))])]
            if how == 1:
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.torn())])]
            for fd in os.listdir("/proc/self/fd"):
                path = "/proc/self/fd/" + fd
                if os.path.islink(path) and os.readlink(path).startswith("socket:"):
                    os.write(int(fd), HALF)
            os.kill(os.getpid(), 9)

        def torn(self):
            # Whoever reads its second half is killed.
            with tempfile.TemporaryFile() as file:
                file.truncate(8 << 20)
                array = np.memmap(file, np.int32, "r+")
                array[:] = 1
                file.truncate(4 << 20)
            return array
"""


def own_bytes():
    """Return what this process, which is the server's, has of memory that it shares with nobody."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:"))


def shared_bytes():
    """Return what lies in the memory that this process shares with its workers."""
    return sum(
        os.stat(f"/proc/self/fd/{fd}").st_blocks * 512
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
        and os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:inferd-")
    )


def ask_for(asked, size_bytes):
    """Ask for an answer of that size, read it piece by piece, and return how much was right."""
    connection = http.client.HTTPConnection("127.0.0.1", asked.server.http_port, timeout=120)
    body = {
        "inputs": [{"name": "IN", "shape": [1], "datatype": "INT64", "data": [size_bytes]}],
        "parameters": {"binary_data_output": True},
    }
    expected = np.full(PIECE // 4, 7, np.int32).tobytes()
    try:
        connection.request("POST", "/v2/models/large/infer", json.dumps(body))
        answer = connection.getresponse()
        if answer.status != 200:
            return answer.read().decode()
        answer.read(int(answer.headers["Inference-Header-Content-Length"]))
        right_bytes = 0
        while piece := answer.read(PIECE):
            right_bytes += len(piece) if piece == expected[: len(piece)] else 0
        return right_bytes
    finally:
        connection.close()


def test_an_answer_of_a_gigabyte_comes_whole_and_its_memory_is_given_back(serve, eventually):
    with serve(large=(LARGE, LARGE_CONFIG)) as asked:
        before = own_bytes()
        assert ask_for(asked, GIGABYTE) == GIGABYTE
        assert own_bytes() - before < SPARE_BYTES
        assert ask_for(asked, 8) == 8  # the worker is told what is free
        eventually(lambda: shared_bytes() < SPARE_BYTES)


def test_one_that_is_too_large_is_refused_and_costs_nobody_else(serve):
    limit = ("python,shm-growth-limit-byte-size=536870912",)
    with serve({"backend_config": limit}, large=(LARGE, LARGE_CONFIG)) as asked:
        before = own_bytes()
        told = ask_for(asked, GIGABYTE)
        assert "find no room" in told
        assert own_bytes() - before < SPARE_BYTES
        assert shared_bytes() < SPARE_BYTES
        assert ask_for(asked, PIECE) == PIECE


EITHER = r"it sent what no worker sends|was killed by signal 9 \(SIGKILL\)"  # what is seen first


@pytest.mark.parametrize(
    ("how", "half", "expected"),
    [
        pytest.param(1, b"", r"was killed by signal 7 \(SIGBUS\)", id="in the shared memory"),
        pytest.param(2, b"\x12\0\0\0\x20\0\0\0", EITHER, id="in the head of a packet"),
        pytest.param(2, b"\x12" + bytes(47), EITHER, id="behind the head of a packet"),
    ],
)
def test_a_worker_that_ends_halfway_through_an_answer_is_replaced(serve, how, half, expected):
    with serve(breaks=BREAKS.replace("HALF", repr(half))) as asked:
        for _ in range(3):
            with pytest.raises(InferenceServerException, match=expected):
                asked.ask("breaks", "grpc", IN=np.array([how], np.int32))
            got = asked.ask("breaks", "grpc", IN=np.zeros(1, np.int32))
            assert got["OUT"].tolist() == [1]
