"""Sends messages through the ensemble `messages`, and asks what its steps have done.

python examples/messages/ask.py [HTTP_URL GRPC_URL]
"""

import sys

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
MESSAGES = [
    "Please call my office at +49 30 1234567 or write to ann@example.com",
    "Der Schlüssel ist bei mir und mein Telefon ist 0170 555 0123",
    "La réponse est dans le livre et sur la table",
]


def main() -> None:
    """Print the report of each message, all of which are one request."""
    with connect(HTTP) as client:
        answer = client.infer("messages", {"message": [[text] for text in MESSAGES]})
        print(*answer.strings("report"), sep="\n")
        for one in sorted(client.statistics(), key=lambda one: one.name):
            print(f"{one.name}: {one.inference_count} messages in {one.execution_count} executions")


if __name__ == "__main__":
    main()
