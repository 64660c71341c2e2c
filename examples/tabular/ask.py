"""Asks the model `wine` who grew two wines: once as rows of numbers, once as a table of columns.

python examples/tabular/ask.py [HTTP_URL GRPC_URL]
"""

import sys

import numpy as np

from inferd.client import connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
# Alcohol, malic acid, ash, its alkalinity, magnesium, phenols, flavonoids, other phenols,
# proanthocyanins, colour, hue, OD280/OD315, proline.
WINES = np.array(
    [
        [13.7, 1.8, 2.4, 17.0, 106.0, 2.8, 3.0, 0.3, 1.9, 5.5, 1.1, 3.2, 1115.0],
        [12.3, 1.9, 2.2, 20.2, 94.5, 2.3, 2.1, 0.4, 1.6, 3.1, 1.1, 2.8, 519.0],
    ]
)


def main() -> None:
    """Print the growers."""
    with connect(GRPC) as client:
        answer = client.infer("wine", {"input": WINES})
        for [grower], chances in zip(answer["predict"], answer["predict_proba"], strict=True):
            print(f"grower {grower} ({chances[grower]:.0%} sure)")

    columns = {f"x{number}": WINES[:, number] for number in range(WINES.shape[1])}
    with connect(HTTP) as client:
        answer = client.infer("wine", columns, outputs=["predict"])
    print("as columns:", *answer["predict"].ravel())


if __name__ == "__main__":
    main()
