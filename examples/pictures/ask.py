"""Sends pictures to the model picture_to_digit and prints which digits it sees.

    python examples/pictures/ask.py [--url HOST:PORT] PICTURE...

Needs `pip install tritonclient[http]`, or the development dependencies.
"""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton


def main() -> None:
    """Ask about each picture, all of them in one request."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="127.0.0.1:8000")
    parser.add_argument("pictures", nargs="+", type=Path)
    options = parser.parse_args()
    contents = [[path.read_bytes()] for path in options.pictures]
    picture = triton.InferInput("picture", [len(contents), 1], "BYTES")
    picture.set_data_from_numpy(np.array(contents, dtype=object))
    with triton.InferenceServerClient(options.url) as client:
        answer = client.infer("picture_to_digit", [picture])
    digits, probabilities = answer.as_numpy("digit"), answer.as_numpy("probability")
    for path, [digit], chances in zip(options.pictures, digits, probabilities, strict=True):
        print(f"{path.name}: {digit} ({chances[digit]:.1%} sure)")


if __name__ == "__main__":
    main()
