"""Sends pictures to the ensemble `picture_to_digit` and prints which digits it sees.

python examples/pictures/ask.py [HTTP_URL GRPC_URL [PICTURE...]]
"""

import sys
from pathlib import Path

from inferd.client import Client, ServerError, connect

HERE = Path(__file__).parent
HTTP, GRPC, *GIVEN = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
PICTURES = [Path(name) for name in GIVEN] or [HERE / "three.png", HERE / "seven.jpg"]


def classify(client: Client, pictures: list[Path]) -> None:
    """Ask about all pictures in one request; print the best two classes of each."""
    contents = [[path.read_bytes()] for path in pictures]
    answer = client.infer("picture_to_digit", {"picture": contents}, classification=2)
    for path, best in zip(pictures, answer.classes("probability"), strict=True):
        print(f"{path.name}: {', '.join(f'{one.label} {one.score:.1%}' for one in best)}")


def main() -> None:
    """Show good pictures, and what becomes of a file that is none."""
    with connect(HTTP) as client:
        classify(client, PICTURES)
        try:
            classify(client, [HERE / "README.md"])
        except ServerError as error:
            print(f"README.md: {error.message}")


if __name__ == "__main__":
    main()
