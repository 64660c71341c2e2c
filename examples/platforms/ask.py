"""Asks every model that is served for 16 digits, and compares with what numpy computes.

python examples/platforms/ask.py [HTTP_URL GRPC_URL]
"""

import sys

import digits
import numpy as np

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")


def main() -> None:
    """Print how far each answer is from the expected one."""
    images = digits.images()
    expected = digits.classify(images)
    print("digits:", *expected["digit"].ravel())
    with connect(GRPC) as client:
        for entry in client.models(ready=True):
            answer = client.infer(entry.name, {"image": images})
            right = (answer["digit"] == expected["digit"]).sum()
            off = np.abs(answer["probability"] - expected["probability"]).max()
            said = "within 0.00001" if off < 1e-5 else f"off by {off:.5f}"
            platform = client.metadata(entry.name).platform
            print(f"{platform}: {right} of {len(images)} the same, probabilities {said}")


if __name__ == "__main__":
    main()
