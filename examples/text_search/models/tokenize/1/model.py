"""Turns texts into numbers of tokens, with the tokenizer that lies beside it."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

MOST_TOKENS = 256


class TritonPythonModel:
    """One instance: a process with the tokenizer in it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer."""
        from tokenizers import Tokenizer

        folder = Path(args["model_repository"]) / args["model_version"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MOST_TOKENS)
        self.tokenizer.enable_padding()  # to the longest text of a request

    def execute(self, requests: list) -> list:
        """Answer each request: texts [n, 1] to `ids` and `mask` [n, length]."""
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            found = self.tokenizer.encode_batch([text.decode(errors="replace") for [text] in texts])
            ids = np.array([one.ids for one in found], np.int64)
            mask = np.array([one.attention_mask for one in found], np.int64)
            tensors = [pb_utils.Tensor("ids", ids), pb_utils.Tensor("mask", mask)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
