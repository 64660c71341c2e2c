"""Continues a text word by word, each as an answer of its own as soon as it is chosen.

Which word may follow two others is counted in story.txt, when the model loads: a language model of
the smallest kind. A large one would be called at the same place.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = 20  # unless the request says how many


def words_of(text: str) -> list[str]:
    """Split a text into words and marks."""
    return re.findall(r"\w+|[^\w\s]", text)


class TritonPythonModel:
    """One instance: a process with the counts in it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the story and note what follows each word, and each two words."""
        folder = Path(args["model_repository"]) / args["model_version"]
        words = words_of((folder / "story.txt").read_text(encoding="utf-8"))
        self.following = defaultdict(list)
        for first, second, third in zip(words, words[1:], words[2:], strict=False):
            self.following[first, second].append(third)
            self.following[second].append(third)

    def execute(self, requests: list) -> None:
        """Answer each request word by word."""
        for request in requests:
            sender = request.get_response_sender()
            for word in self.words_after(request):
                if sender.is_cancelled():  # the client has read enough
                    break
                text = np.array([word.encode()], object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text", text)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def words_after(self, request: pb_utils.InferenceRequest) -> Iterator[str]:
        """Yield the words that go on from the request's prompt."""
        prompt = pb_utils.get_input_tensor_by_name(request, "prompt").as_numpy()[0].decode()
        chance = random.Random(number_of(request, "seed", 0))
        last, word = ["", "", *words_of(prompt)][-2:]
        for _ in range(number_of(request, "words", WORDS)):
            choices = self.following.get((last, word)) or self.following.get(word)
            if not choices:  # the story ends here, or never had this word
                return
            last, word = word, chance.choice(choices)
            yield word if re.match(r"[^\w\s]", word) else " " + word


def number_of(request: pb_utils.InferenceRequest, name: str, default: int) -> int:
    """Return an optional input of one number."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else int(tensor.as_numpy()[0])
