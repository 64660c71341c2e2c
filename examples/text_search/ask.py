"""Asks the ensemble `embed` for vectors of sentences, and finds the one nearest to each question.

python examples/text_search/ask.py [HTTP_URL GRPC_URL]
"""

import sys

import numpy as np

from inferd.client import Client, connect

HTTP, GRPC = sys.argv[1:] or ("http://127.0.0.1:8000", "grpc://127.0.0.1:8001")
SENTENCES = [
    "A raised exception ends the block, and a handler for its class is looked for.",
    "A class body is executed, and its namespace becomes the attributes of the class.",
    "An integer is divided by another, rounding towards minus infinity.",
    "The import system finds a module, loads it and binds its name.",
    "Characters of a string are replaced as its format specification says.",
    "A coroutine is suspended until the awaitable has a result.",
    "Items of a list are selected by a slice with lower and upper bound.",
]
QUESTIONS = [
    "try and except an error",
    "asynchronous functions with await",
    "where does Python search for packages?",
    "floor division of numbers",
    "inherit from a base class",
    "index of an element in a sequence",
]


def embed(client: Client, texts: list[str]) -> np.ndarray:
    """Return a vector of length 1 for each text, FP32 [n, 40]."""
    return client.infer("embed", {"text": [[text] for text in texts]})["embedding"]


def main() -> None:
    """Print what was found."""
    with connect(GRPC) as client:
        known = embed(client, SENTENCES)
        likeness = embed(client, QUESTIONS) @ known.T
    for question, row in zip(QUESTIONS, likeness, strict=True):
        print(f"{question}\n    {row.max():.2f}  {SENTENCES[row.argmax()]}")


if __name__ == "__main__":
    main()
