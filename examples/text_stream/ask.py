"""Reads a text of the model `continue_text` as it is written, over REST and over gRPC.

python examples/text_stream/ask.py [HTTP_URL GRPC_URL]
"""

import json
import sys
from itertools import islice
from urllib.request import Request, urlopen

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
MODEL = "continue_text"
PROMPT = "One evening the"


def main() -> None:
    """Print the same text three times: by events, by a stream, and by a stream that is left."""
    body = json.dumps({"prompt": PROMPT, "seed": 7}).encode()
    print(f"REST: {PROMPT}", end="", flush=True)
    with urlopen(Request(f"{HTTP}/v2/models/{MODEL}/generate_stream", body), timeout=20) as events:
        for line in events:
            if line.startswith(b"data: "):
                print(json.loads(line[6:])["text"], end="", flush=True)

    with connect(GRPC) as client:
        print(f"\ngRPC: {PROMPT}", end="", flush=True)
        for answer in client.stream(MODEL, {"prompt": [PROMPT], "seed": [7]}):
            print(*answer.strings("text"), sep="", end="", flush=True)
        endless = client.stream(MODEL, {"prompt": [PROMPT], "seed": [7], "words": [1_000_000]})
        print(f"\nleft after four of a million words: {PROMPT}", end="")
        for answer in islice(endless, 4):
            print(*answer.strings("text"), sep="", end="")
        endless.close()  # which the model sees by sender.is_cancelled()
    print()


if __name__ == "__main__":
    main()
