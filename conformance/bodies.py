"""The requests the tests start from, and values of every datatype with their bytes."""

import struct
from typing import Any

OUTPUT0 = [2.0, 3.0, 4.0, 5.0]
OUTPUT1 = [0.0, 1.0, 2.0, 3.0]
INPUT0_BYTES = struct.pack("<4f", 1, 2, 3, 4)
INPUT1_BYTES = struct.pack("<4f", 1, 1, 1, 1)
OUTPUT0_BYTES = struct.pack("<4f", *OUTPUT0)
OUTPUT1_BYTES = struct.pack("<4f", *OUTPUT1)


def prefixed(*elements: bytes) -> bytes:
    """Return BYTES elements as the binary forms have them: each after its uint32 length."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


SAMPLES: dict[str, tuple[list[Any], bytes]] = {
    "BOOL": ([True, False, True], b"\x01\x00\x01"),
    "UINT8": ([0, 200, 255], b"\x00\xc8\xff"),
    "UINT16": ([0, 1, 65535], struct.pack("<3H", 0, 1, 65535)),
    "UINT32": ([0, 1, 4294967295], struct.pack("<3I", 0, 1, 4294967295)),
    "UINT64": ([0, 1, 2**64 - 1], struct.pack("<3Q", 0, 1, 2**64 - 1)),
    "INT8": ([-128, 0, 127], struct.pack("<3b", -128, 0, 127)),
    "INT16": ([-32768, 0, 32767], struct.pack("<3h", -32768, 0, 32767)),
    "INT32": ([-(2**31), 0, 2**31 - 1], struct.pack("<3i", -(2**31), 0, 2**31 - 1)),
    "INT64": ([-(2**63), 0, 2**63 - 1], struct.pack("<3q", -(2**63), 0, 2**63 - 1)),
    "FP32": ([-1.5, 0.0, 0.25], struct.pack("<3f", -1.5, 0, 0.25)),
    "FP64": ([-0.1, 0.0, 1e300], struct.pack("<3d", -0.1, 0, 1e300)),
    "BYTES": (["é😀", "", "a b"], prefixed("é😀".encode(), b"", b"a b")),
}
"""Datatype -> three values as JSON has them, and the same as wire bytes."""

HALVES: dict[str, tuple[list[float], bytes]] = {
    "FP16": ([-1.5, 0.0, 0.1], b"\x00\xbe\x00\x00\x66\x2e"),
    "BF16": ([-1.5, 0.0, 0.1], b"\xc0\xbf\x00\x00\xcd\x3d"),
}
"""The 16-bit floats; 0.1 is the shortest text of the half next to it."""

OUT_OF_RANGE = {
    "UINT8": (-1, 256),
    "UINT16": (-1, 65536),
    "UINT32": (-1, 2**32),
    "UINT64": (-1, 2**64),
    "INT8": (-129, 128),
    "INT16": (-(2**15) - 1, 2**15),
    "INT32": (-(2**31) - 1, 2**31),
    "INT64": (-(2**63) - 1, 2**63),
}
"""Integer datatype -> the values just below and just above it."""


def ok_body(**fields: Any) -> dict[str, Any]:
    """Return the plain request to model m: INPUT0 1 2 3 4, INPUT1 all ones."""
    return {
        "inputs": [
            {"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]},
            {"name": "INPUT1", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]},
        ],
        **fields,
    }


def body_with(index: int, **fields: Any) -> dict[str, Any]:
    """Return the plain request with fields of one input replaced."""
    body = ok_body()
    body["inputs"][index].update(fields)
    return body


def stem(datatype: str) -> str:
    """Return what follows IN_ and OUT_ in the names of model all's tensors of `datatype`."""
    return "BYTES" if datatype == "STRING" else datatype


def outputs_of(*datatypes: str, is_binary: bool = False) -> list[dict[str, Any]]:
    """Return model all's outputs for `datatypes`: servers may fill those without an input, too."""
    parameters = {"binary_data": is_binary}
    return [{"name": f"OUT_{stem(datatype)}", "parameters": parameters} for datatype in datatypes]


def one(
    datatype: str, data: Any, shape: Any = None, *, is_binary: bool = False, **fields: Any
) -> dict[str, Any]:
    """Return a request to model all with one input, for its output, as a blob if `is_binary`.

    `shape` is that of the input, by default the length of `data`.
    """
    return {
        "inputs": [
            {
                "name": f"IN_{stem(datatype)}",
                "shape": [len(data)] if shape is None else shape,
                "datatype": datatype,
                "data": data,
            }
        ],
        "outputs": outputs_of(datatype, is_binary=is_binary),
        **fields,
    }


def one_binary(datatype: str, count: int, size: Any, *, is_binary: bool = False) -> dict[str, Any]:
    """Return a request to model all whose one input of `count` elements is a blob of `size`.

    Its output is to be a blob, too, if `is_binary`.
    """
    blob = {"binary_data_size": size}
    name = f"IN_{stem(datatype)}"
    tensor = {"name": name, "shape": [count], "datatype": datatype, "parameters": blob}
    return {"inputs": [tensor], "outputs": outputs_of(datatype, is_binary=is_binary)}


def raw_json(datatype: str, data: str) -> bytes:
    """Return a request to model all whose `data` is JSON text Python's own writer cannot make."""
    count = data.count(",") + 1
    head = f'{{"inputs":[{{"name":"IN_{datatype}","shape":[{count}],"datatype":"{datatype}",'
    return f'{head}"data":[{data}]}}],"outputs":[{{"name":"OUT_{datatype}"}}]}}'.encode()


def both_binary(**fields: Any) -> dict[str, Any]:
    """Return the plain request with both inputs as blobs of 16 bytes."""
    body = ok_body(**fields)
    for tensor in body["inputs"]:
        del tensor["data"]
        tensor["parameters"] = {"binary_data_size": 16}
    return body
