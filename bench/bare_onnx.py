"""Prints the CPU microseconds per image of an ONNX model with nothing around it.

    python bench/bare_onnx.py MODEL_FILE SECONDS [BATCH_SIZE]

One thread, without spinning: the least that a server adds its own work to.
"""

import sys
import time

import numpy as np
import onnxruntime


def bare_cpu_us(model_file: str, seconds: float, batch_size: int = 1) -> float:
    """Run the convnet for `seconds`; return this process's CPU microseconds per image."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model_file, options, providers=["CPUExecutionProvider"])
    image = np.random.default_rng(7).random((batch_size, 3, 224, 224), np.float32)
    for _ in range(max(2, 20 // batch_size)):
        session.run(None, {"INPUT": image})
    runs, before = 0, time.process_time()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        session.run(None, {"INPUT": image})
        runs += 1
    return (time.process_time() - before) / (runs * batch_size) * 1e6


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: bare_onnx.py MODEL_FILE SECONDS [BATCH_SIZE]")
    file, seconds, *sizes = sys.argv[1:]
    print(f"{bare_cpu_us(file, float(seconds), *map(int, sizes)):.1f}")
