"""Asks the model `digits`, in three ways, which digit digit.json is.

python examples/digits/ask.py [HTTP_URL GRPC_URL]
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
INFER = f"{HTTP}/v2/models/digits/infer"
DIGIT_FILE = Path(__file__).with_name("digit.json")
DIGIT = 3  # what the person who wrote it meant
SHADES = " .:-=+*#%@"

Answer = tuple[int, float]  # the digit, and how sure the model is (0 to 1)


def load_image() -> np.ndarray:
    """Return the handwritten digit, FP32 [1, 8, 8], pixels 0 to 16."""
    [tensor] = json.loads(DIGIT_FILE.read_bytes())["inputs"]
    return np.array(tensor["data"], dtype="<f4")


def drawn(image: np.ndarray) -> str:
    """Return the image as eight lines of text, two characters a pixel."""
    rows = (image[0] / 16 * (len(SHADES) - 1)).round().astype(int)
    return "\n".join("    " + "".join(SHADES[shade] * 2 for shade in row) for row in rows)


def ask_rest_json() -> Answer:
    """Send the request that lies in the file."""
    with urlopen(Request(INFER, DIGIT_FILE.read_bytes()), timeout=10) as response:
        outputs = {one["name"]: one["data"] for one in json.load(response)["outputs"]}
    [digit] = outputs["digit"]
    return digit, outputs["probability"][digit]


def ask_rest_binary() -> Answer:
    """Send a JSON head, then the pixels as raw bytes: the binary tensor data extension."""
    image = load_image()
    tensor = {
        "name": "image",
        "datatype": "FP32",
        "shape": image.shape,
        "parameters": {"binary_data_size": image.nbytes},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    with urlopen(Request(INFER, head + image.tobytes(), headers), timeout=10) as response:
        position = int(response.headers["Inference-Header-Content-Length"])
        body = response.read()
    tails = {}
    for output in json.loads(body[:position])["outputs"]:
        size_bytes = output["parameters"]["binary_data_size"]
        tails[output["name"]] = body[position : position + size_bytes]
        position += size_bytes
    digit = int(np.frombuffer(tails["digit"], "<i8")[0])
    return digit, float(np.frombuffer(tails["probability"], "<f4")[digit])


def ask_grpc() -> Answer:
    """Have inferd's own client send the same tensor over gRPC."""
    with connect(GRPC) as client:
        result = client.infer("digits", {"image": load_image()})
    digit = int(result["digit"].item())
    return digit, float(result["probability"][0, digit])


def ask(way: str, call: Callable[[], Answer]) -> bool:
    """Ask twice, print the answer and the second call's latency; True if the digit is right."""
    call()  # the first call also pays for imports
    started = time.perf_counter()
    digit, probability = call()
    latency_ms = (time.perf_counter() - started) * 1e3
    verdict = "" if digit == DIGIT else f"   WRONG: it is a {DIGIT}"
    print(f"  {way:<12} says {digit}, {probability:.2%} sure, in {latency_ms:.1f} ms{verdict}")
    return digit == DIGIT


def main() -> int:
    """Show the digit and the three answers; return 0 if all are right."""
    print(f"A digit somebody wrote ({DIGIT_FILE.name}):\n\n{drawn(load_image())}\n")
    right = [
        ask("REST, JSON", ask_rest_json),
        ask("REST, binary", ask_rest_binary),
        ask("gRPC", ask_grpc),
    ]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
