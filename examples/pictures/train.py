"""Trains a small convolutional network on handwritten digits and writes it as an ONNX model.

    pip install torch scikit-learn onnx
    python examples/pictures/train.py

The data is scikit-learn's own set of 1,797 digits, 8x8 pixels each. It is enlarged to 16x16, and
turned, moved and scaled at random, so that digits anywhere in a picture are recognised. The same
versions of the packages give the same file.
"""

import math
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

MODEL_FILE = Path(__file__).parent / "models" / "digit_net" / "1" / "model.onnx"
SIDE = 16
EPOCHS = 60
BATCH_SIZE = 64


class DigitNet(nn.Module):
    """Two convolutions and two layers: images [n, 16, 16] of 0 to 1 to scores [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        self.dense, self.score = nn.Linear(24 * 4 * 4, 48), nn.Linear(48, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = functional.max_pool2d(functional.relu(self.conv1(image[:, None])), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.score(functional.relu(self.dense(x.flatten(1))))


def load_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all digits as [n, 16, 16], and which they are."""
    digits = load_digits()
    small = torch.from_numpy(digits.images.astype(np.float32) / 16)[:, None]
    images = functional.interpolate(small, size=SIDE, mode="bicubic").clamp(0, 1)[:, 0]
    return images, torch.from_numpy(digits.target)


def varied(images: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """Return images [n, 16, 16] turned by up to 12 degrees, scaled, moved by up to two pixels."""
    count = len(images)

    def uniform(most: float) -> torch.Tensor:
        return (torch.rand(count, generator=chance) * 2 - 1) * most

    angle, scale = uniform(math.radians(12)), 1 + uniform(0.2)
    turned = torch.stack([torch.cos(angle), -torch.sin(angle), torch.sin(angle), torch.cos(angle)])
    matrix = torch.empty(count, 2, 3)
    matrix[:, :, :2] = (turned * scale).T.reshape(count, 2, 2)
    matrix[:, 0, 2], matrix[:, 1, 2] = uniform(0.25), uniform(0.25)
    grid = functional.affine_grid(matrix, [count, 1, SIDE, SIDE], align_corners=False)
    return functional.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


def train(images: torch.Tensor, target: torch.Tensor, chance: torch.Generator) -> DigitNet:
    """Return a network that knows these images."""
    net = DigitNet()
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-3)
    pace = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images), generator=chance).split(BATCH_SIZE):
            scores = net(varied(images[batch], chance))
            loss = functional.cross_entropy(scores, target[batch], label_smoothing=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        pace.step()
    return net.eval()


def onnx_model(net: DigitNet) -> onnx.ModelProto:
    """Return the network as ONNX: `image` FP32 [N, 16, 16] to `digit` and `probability`."""
    weights = [
        numpy_helper.from_array(value.numpy(), name) for name, value in net.state_dict().items()
    ]
    weights.append(numpy_helper.from_array(np.array([1]), "one"))
    pads, pool = [1, 1, 1, 1], {"kernel_shape": [2, 2], "strides": [2, 2]}
    layer = helper.make_node
    nodes = [
        layer("Unsqueeze", ["image", "one"], ["plane"]),
        layer("Conv", ["plane", "conv1.weight", "conv1.bias"], ["c1"], pads=pads),
        layer("Relu", ["c1"], ["r1"]),
        layer("MaxPool", ["r1"], ["p1"], **pool),
        layer("Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], pads=pads),
        layer("Relu", ["c2"], ["r2"]),
        layer("MaxPool", ["r2"], ["p2"], **pool),
        layer("Flatten", ["p2"], ["flat"]),
        layer("Gemm", ["flat", "dense.weight", "dense.bias"], ["d"], transB=1),
        layer("Relu", ["d"], ["rd"]),
        layer("Gemm", ["rd", "score.weight", "score.bias"], ["scores"], transB=1),
        layer("Softmax", ["scores"], ["probability"], axis=1),
        layer("ArgMax", ["scores"], ["digit"], axis=1, keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digit_net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", SIDE, SIDE])],
        [
            helper.make_tensor_value_info("digit", TensorProto.INT64, ["N", 1]),
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["N", 10]),
        ],
        weights,
    )
    model = helper.make_model(
        graph, producer_name="inferd", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, say how well it does on digits not trained on, and write the model."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    chance = torch.Generator().manual_seed(0)
    images, target = load_images()
    train_at, test_at = train_test_split(
        np.arange(len(target)), test_size=0.25, random_state=0, stratify=target
    )
    net = train(images[train_at], target[train_at], chance)
    with torch.no_grad():
        guessed = net(images[test_at]).argmax(1), net(varied(images[test_at], chance)).argmax(1)
    plain, moved = ((one == target[test_at]).float().mean().item() for one in guessed)
    print(f"of {len(test_at)} digits not trained on: {plain:.1%} right, moved about: {moved:.1%}")
    MODEL_FILE.parent.mkdir(parents=True, exist_ok=True)
    MODEL_FILE.write_bytes(onnx_model(net).SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
