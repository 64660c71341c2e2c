"""Checks of the pickles inside TorchScript: they are followed without being run.

PyTorch's reader trusts them: a tensor that claims more bytes than its archive member holds would
expose other memory of the process as weights.
"""

import pickletools
from collections.abc import Mapping
from typing import Any

_MARK = object()

_ITEM_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2,
    "LongStorage": 8, "IntStorage": 4, "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1,
    "BoolStorage": 1, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16,
    "UInt16Storage": 2, "UInt32Storage": 4, "UInt64Storage": 8, "QInt32Storage": 4,
}  # fmt: skip

HARMLESS_CLASSES = ("quantized", "sparse", "xnnpack", "mkldnn", "rnn")
"""Groups of torch.classes whose native code only computes."""


class _Storage(int):
    """The number of elements in a tensor's storage."""


def check_pickle(data: bytes, sizes: Mapping[str, int]) -> str:
    """Return what is wrong with the pickle `data`, "" if nothing.

    `sizes` are the sizes in bytes of the storages that it may refer to.
    """
    machine = _Machine(sizes)
    try:
        # genops only decodes; it imports and calls nothing, whatever the pickle says.
        for operation, argument, _ in pickletools.genops(data):
            machine.step(operation, argument)
            if machine.complaint:
                return machine.complaint
    except Exception:  # noqa: BLE001  many kinds from genops, IndexError from the stack
        return "the pickle is broken"
    return ""


class _Machine:
    """A pickle machine's stack, reduced to what tensors need: numbers, texts, tuples; else None."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.complaint = ""
        self._sizes = sizes
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, operation: pickletools.OpcodeInfo, argument: Any) -> None:
        """Execute one operation. Raises IndexError on a stack underflow."""
        name, stack = operation.name, self._stack
        if name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            # MEMOIZE numbers its entries by how many there are (pickle protocol 4).
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo.get(argument))
        elif name == "MARK":
            stack.append(_MARK)
        # How torch.save refers to a storage: a tuple ("storage", type, key, device, count).
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            self._check_call(stack.pop(), arguments)
            # What the call makes is nothing whose size matters below.
            stack.append(None)
        else:
            self._step_plainly(operation, argument)

    def _step_plainly(self, operation: pickletools.OpcodeInfo, argument: Any) -> None:
        taken = self._take(operation)
        for _ in operation.stack_after:
            if operation.name.startswith("TUPLE") or operation.name == "EMPTY_TUPLE":
                self._stack.append(tuple(taken))
            elif operation.name == "DUP":
                self._stack.append(taken[0])
            else:
                self._stack.append(argument if isinstance(argument, (int, str)) else None)
        if operation.name == "GLOBAL":
            self._check_class(argument)

    def _take(self, operation: pickletools.OpcodeInfo) -> list[Any]:
        before, stack = operation.stack_before, self._stack
        taken: list[Any] = []
        # Takes everything down to the mark, and what its opcode takes besides from below it.
        if pickletools.markobject in before:
            while (item := stack.pop()) is not _MARK:
                taken.insert(0, item)
            below = before.index(pickletools.markobject)
        else:
            below = len(before)
        under = [stack.pop() for _ in range(below)]
        return taken or under[::-1]

    def _check_class(self, name: str) -> None:
        _, found, rest = name.replace(" ", ".").partition("torch.classes.")
        if found and rest.partition(".")[0] not in HARMLESS_CLASSES:
            self.complaint = f"there is an object of native code, torch.classes.{rest}"

    def _storage(self, described: Any) -> _Storage | None:
        if not isinstance(described, tuple) or len(described) < 5 or described[0] != "storage":
            self.complaint = "something is referred to that is no tensor"
            return None
        _, kind, key, _, count = described[:5]
        # An unknown kind counts one byte for an element, the least that any can have.
        size_bytes = _ITEM_BYTES.get(str(kind).split()[-1], 1)
        if not isinstance(count, int) or not 0 <= count * size_bytes <= self._sizes.get(key, -1):
            self.complaint = f"tensor storage '{key}' claims {count} elements, the file has fewer"
        return _Storage(count) if isinstance(count, int) else None

    def _check_call(self, called: Any, arguments: Any) -> None:
        # A call without a storage makes no tensor that could reach beyond one.
        if not isinstance(arguments, tuple) or not any(
            isinstance(argument, _Storage) for argument in arguments
        ):
            return
        match arguments:
            case (_Storage() as count, int(offset), tuple(shape), tuple(strides), *_):
                sizes = (offset, *shape, *strides)
                if len(shape) == len(strides) and all(
                    isinstance(size, int) and size >= 0 for size in sizes
                ):
                    # The last element: strides are not negative, so no other one is further on.
                    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
                    if 0 in shape or offset + last < count:
                        return
        self.complaint = f"a tensor ({called}) reaches beyond its storage"
