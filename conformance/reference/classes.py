"""Classification by plain rules: sort everything, keep the first."""

import struct
from math import prod

from conformance.reference.models import SIZES, Model, Refused, Tensor
from conformance.reference.values import decode_tensor

CLASSIFIABLE = {name for name in SIZES if "INT" in name} | {"FP32", "FP64"}


def check_classes(model: Model, top_k: dict[str, int]) -> None:
    """Raise Refused when an output is wanted as classes that has none."""
    for name in top_k:
        datatype = model.outputs[name][0] if name in model.outputs else "FP32"
        if datatype not in CLASSIFIABLE:
            msg = f"output '{name}' is {datatype}, which has no classes"
            raise Refused(msg)


def classified(model: Model, tensor: Tensor, top_k: int) -> Tensor:
    """Return the greatest elements of each batch entry as value:index:label."""
    batch = tensor.shape[:1] if model.max_batch else []
    values = decode_tensor(tensor) if tensor.datatype != "FP32" else wide(tensor.raw)
    count = prod(tensor.shape[len(batch) :])
    labels = model.labels.get(tensor.name, [])
    raw = b""
    for start in range(0, len(values), count):
        entry = sorted(enumerate(values[start : start + count]), key=lambda one: -one[1])
        for index, value in entry[:top_k]:
            label = f":{labels[index]}" if index < len(labels) else ""
            text = f"{value:f}" if tensor.datatype.startswith("FP") else str(value)
            element = f"{text}:{index}{label}".encode()
            raw += struct.pack("<I", len(element)) + element
    return Tensor(tensor.name, "BYTES", [*batch, min(top_k, count)], raw)


def wide(raw: bytes) -> tuple[float, ...]:
    """Return FP32 elements as the doubles they are."""
    return struct.unpack(f"<{len(raw) // 4}f", raw)
