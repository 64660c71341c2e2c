"""Writes the digit classifier as TorchScript and as a torch.export program.

    python examples/platforms/to_pytorch.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. Needs `pip install torch`.
"""

import sys
import warnings
from pathlib import Path

import digits

MODELS = ("digits_torchscript", "digits_torch_export")


def export(repository: Path) -> None:
    """Write both models."""
    import torch

    numbers = {name: torch.from_numpy(array) for name, array in digits.weights().items()}

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(64, 48)
            self.scores = torch.nn.Linear(48, 10)
            self.hidden.weight.data = numbers["hidden_weights"].T.contiguous()
            self.hidden.bias.data = numbers["hidden_bias"]
            self.scores.weight.data = numbers["score_weights"].T.contiguous()
            self.scores.bias.data = numbers["score_bias"]

        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            scores = self.scores(torch.relu(self.hidden(image.flatten(1) / 16.0)))
            return {
                "digit": scores.argmax(dim=1, keepdim=True),
                "probability": torch.softmax(scores, dim=1),
            }

    model = Classifier().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript says at every call that it is deprecated
        script = torch.jit.script(model)
        script.save(str(digits.place(repository, MODELS[0], "model.pt", digits.TENSORS)))
        count = torch.export.Dim("count", min=1, max=digits.MAX_BATCH_SIZE)
        example = torch.from_numpy(digits.images()[:2])
        program = torch.export.export(model, (example,), dynamic_shapes=({0: count},))
        torch.export.save(program, digits.place(repository, MODELS[1], "model.pt2"))


if __name__ == "__main__":
    export(Path(sys.argv[1]))
