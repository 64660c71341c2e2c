"""Asks the model `line`, which a backend of another package runs.

python examples/backend_package/ask.py [HTTP_URL GRPC_URL]
"""

import sys

import numpy as np

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")


def main() -> None:
    """Print who runs the model and what it answers."""
    with connect(HTTP) as client:
        answer = client.infer("line", {"x": np.array([[1, 10], [2, 20]], np.float32)})
        [output] = answer
        print(f"platform {client.metadata('line').platform}: {answer[output].ravel().tolist()}")


if __name__ == "__main__":
    main()
