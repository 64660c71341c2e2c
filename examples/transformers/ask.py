"""Asks the model `sentiment` whether somebody liked a film.

python examples/transformers/ask.py [HTTP_URL GRPC_URL]
"""

import sys

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
TEXTS = ["this is a lovely film", "an awful film", "good good good", "is this a boring film"]


def main() -> None:
    """Print the label of each text; all are one request, and one call of the pipeline."""
    with connect(HTTP) as client:
        answer = client.infer("sentiment", {"text": [[text] for text in TEXTS]})
    for text, label in zip(TEXTS, answer.strings("label"), strict=True):
        print(f"{text}: {label}")


if __name__ == "__main__":
    main()
