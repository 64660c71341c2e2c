"""A text pipeline of Hugging Face's transformers as a model: text in, label and score out.

The pipeline lies in the folder `pipeline` beside this file, written by

    from transformers import pipeline
    pipeline("text-classification", model="...").save_pretrained("sentiment/1/pipeline")

so the server reads nothing from a network. Needs `pip install transformers torch`.
"""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

MOST_TOKENS = 512


class TritonPythonModel:
    """One instance: a process with the pipeline in it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the pipeline, on the instance's GPU if it has one."""
        import torch
        from transformers import pipeline

        torch.set_num_threads(1)  # requests already run side by side
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"] / "pipeline"
        is_gpu = args["model_instance_kind"] == "GPU"
        self.pipeline = pipeline(
            config["parameters"]["task"]["string_value"],
            model=str(folder),
            device=int(args["model_instance_device_id"]) if is_gpu else -1,
        )

    def execute(self, requests: list) -> list:
        """Answer all requests by one call of the pipeline."""
        texts = [pb_utils.get_input_tensor_by_name(one, "text").as_numpy() for one in requests]
        counts = [len(text) for text in texts]
        flat = [text.decode(errors="replace") for part in texts for text in part.ravel()]
        found = self.pipeline(flat, batch_size=len(flat), truncation=True, max_length=MOST_TOKENS)
        responses, start = [], 0
        for count in counts:
            part = found[start : start + count]
            start += count
            labels = np.array([[one["label"]] for one in part], object)
            scores = np.array([[one["score"]] for one in part], np.float32)
            tensors = [pb_utils.Tensor("label", labels), pb_utils.Tensor("score", scores)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
