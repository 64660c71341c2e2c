"""Sends the values of two sensors, by turns, to the model `surprise`, which remembers each alone.

python examples/sensors/ask.py [HTTP_URL GRPC_URL]
"""

import sys

import numpy as np

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
READINGS = {  # sensor -> what it measured, one after the other
    "kitchen": [20.1, 20.3, 19.9, 20.0, 20.2, 27.5, 20.1],
    "cellar": [11.0, 11.1, 10.9, 11.0, 11.1, 11.0, 3.2],
}
MOST = 4.0  # standard deviations


def main() -> None:
    """Print each reading, and which are unlike those before."""
    rounds = list(zip(*READINGS.values(), strict=True))
    with connect(GRPC) as client:
        for number, values in enumerate(rounds):
            for sequence_id, (sensor, value) in enumerate(zip(READINGS, values, strict=True), 1):
                answer = client.infer(
                    "surprise",
                    {"value": np.array([[value]], np.float32)},
                    sequence_id=sequence_id,
                    sequence_start=number == 0,
                    sequence_end=number == len(rounds) - 1,
                )
                surprise = answer["surprise"].item()
                if abs(surprise) > MOST:
                    print(f"{sensor}: {value} is {surprise:+.1f} deviations from what was before")


if __name__ == "__main__":
    main()
