"""Has a server look at frames of 6 MB that lie in shared memory, with two clients.

python examples/shared_memory/ask.py [HTTP_URL GRPC_URL]
"""

import os
import sys
import time
from collections.abc import Callable

import numpy as np
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
SHAPE = (1080, 1920, 3)
COLOR = (200, 100, 50)
SIZE_BYTES = int(np.prod(SHAPE))
MEANS_BYTES = 3 * 8  # three FP64


def report(way: str, call: Callable[[], np.ndarray]) -> None:
    """Ask twice; print what the second call returned, and how long it took."""
    call()
    started = time.perf_counter()
    means = call()
    took_ms = (time.perf_counter() - started) * 1e3
    print(f"{way:<30} red, green, blue {means.tolist()} in {took_ms:.1f} ms")


def with_inferd_client() -> None:
    """Ask with arrays of our own, then with arrays that lie in a region."""
    with connect(HTTP) as client, client.shared_memory(SIZE_BYTES + MEANS_BYTES) as memory:
        sent = np.full(SHAPE, COLOR, np.uint8)
        report("inferd.client, sent", lambda: client.infer("brightness", {"frame": sent})["output"])

        frame = memory.array(SHAPE, np.uint8)
        means = memory.array(3, np.float64)
        frame[...] = COLOR

        def ask() -> np.ndarray:
            client.infer("brightness", {"frame": frame}, outputs={"output": means})
            return means.copy()

        report("inferd.client, shared memory", ask)
        frame[:540] = 0  # the upper half; nothing is registered or sent anew
        report("the same, half of it black", ask)


def with_tritonclient() -> None:
    """Do the same with Triton's own client, step by step."""
    key = f"/frames_{os.getpid()}"
    handle = shm.create_shared_memory_region("frames", key, SIZE_BYTES + MEANS_BYTES)
    try:
        shm.set_shared_memory_region(handle, [np.full(SHAPE, COLOR, np.uint8)])
        with triton.InferenceServerClient(GRPC.removeprefix("grpc://")) as client:
            client.register_system_shared_memory("frames", key, SIZE_BYTES + MEANS_BYTES)
            frame = triton.InferInput("frame", SHAPE, "UINT8")
            frame.set_shared_memory("frames", SIZE_BYTES)
            output = triton.InferRequestedOutput("output")
            output.set_shared_memory("frames", MEANS_BYTES, offset=SIZE_BYTES)

            def ask() -> np.ndarray:
                client.infer("brightness", [frame], outputs=[output])
                return shm.get_contents_as_numpy(handle, np.float64, [3], SIZE_BYTES)

            report("tritonclient, shared memory", ask)
            client.unregister_system_shared_memory("frames")
    finally:
        shm.destroy_shared_memory_region(handle)


if __name__ == "__main__":
    with_inferd_client()
    with_tritonclient()
