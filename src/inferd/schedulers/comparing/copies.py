"""Copies of answered requests, kept until they have been compared.

Nothing of the client's or the transport's memory is kept: inputs may lie in shared memory, and a
model may write to its inputs, so they are copied before it runs.
"""

from collections.abc import Hashable, Sequence

from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.tensor.tensor import Tensor

MOST_SAMPLE_BYTES = 4 << 20
"""Requests with more bytes than this, in and out, are not compared."""

MOST_BYTES = 16 << 20
"""The most bytes that are kept for one model version."""

HASHED_BYTES = 64 << 10
"""Of a larger input, every so many bytes are hashed that this many are."""

REMEMBERED = 8192
"""How many inputs are known to have been sampled before; then all are forgotten."""


class RequestCopy:
    """A copy of a request and, once it was answered, of the outputs that its client wanted."""

    def __init__(self, request: InferRequest, kind: Hashable) -> None:
        self.request = copied(request)
        self.kind = kind
        self.rows = request.batch_size
        self.digest = _digest(self.request.inputs)
        self.size_bytes = _size_bytes(self.request.inputs)
        self.outputs: list[Tensor] = []

    def take(self, response: InferResponse) -> None:
        """Keep a copy of the outputs of the answer."""
        # Only those are compared: of the others the client's answer has nothing.
        wanted = {output.name for output in self.request.outputs}
        self.outputs = [
            _copied(tensor) for tensor in response.outputs if not wanted or tensor.name in wanted
        ]
        self.size_bytes += _size_bytes(self.outputs)


def copied(request: InferRequest) -> InferRequest:
    """Return a request for the same, with inputs of its own, that no client waits for."""
    return InferRequest(
        request.model,
        request.version,
        inputs=[_copied(tensor) for tensor in request.inputs],
        outputs=[WantedOutput(output.name) for output in request.outputs],
        batch_size=request.batch_size,
    )


def is_small(request: InferRequest) -> bool:
    """Tell whether the inputs of `request` are small enough to be compared."""
    return _size_bytes(request.inputs) <= MOST_SAMPLE_BYTES


class CopyPool:
    """Samples that wait for partners, by kind. No two have, or have had, the same inputs."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, list[RequestCopy]] = {}
        self._size_bytes = 0
        self._seen: set[int] = set()

    def has_seen(self, sample: RequestCopy) -> bool:
        """Tell whether there was a sample with the same inputs; remember these."""
        if sample.digest in self._seen:
            return True
        # Forgetting all costs a few repeated samples; a list by age would cost each sample.
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        self._seen.add(sample.digest)
        return False

    def add(self, sample: RequestCopy) -> None:
        """Add a sample that was answered. If there is no room for it, the oldest kind goes."""
        if sample.size_bytes > MOST_SAMPLE_BYTES:
            return
        while self._size_bytes + sample.size_bytes > MOST_BYTES:
            # Insertion order: the kind that has waited longest for partners is the rarest.
            kind = next(iter(self._kinds))
            self._size_bytes -= sum(one.size_bytes for one in self._kinds.pop(kind))
        self._kinds.setdefault(sample.kind, []).append(sample)
        self._size_bytes += sample.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether the next sample may push out others."""
        return self._size_bytes + MOST_SAMPLE_BYTES > MOST_BYTES

    def rows(self, kind: Hashable) -> int:
        """Return how many rows the samples of a kind have."""
        return sum(sample.rows for sample in self._kinds.get(kind, ()))

    def take(self, kind: Hashable, most_rows: int) -> Sequence[RequestCopy]:
        """Take samples of a kind, oldest first, of at most so many rows; none unless it is two."""
        taken: list[RequestCopy] = []
        left: list[RequestCopy] = []
        rows = 0
        for sample in self._kinds.get(kind, ()):
            if rows + sample.rows <= most_rows:
                taken.append(sample)
                rows += sample.rows
            else:
                left.append(sample)
        # One request alone is not joined with anything.
        if len(taken) < 2:
            return ()
        self._size_bytes -= sum(sample.size_bytes for sample in taken)
        if left:
            self._kinds[kind] = left
        else:
            del self._kinds[kind]
        return taken


def _copied(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.view()))


def _size_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.size_bytes for tensor in tensors)


def _digest(inputs: Sequence[Tensor]) -> int:
    """Return a number that is most likely another for other inputs."""
    parts = []
    for tensor in sorted(inputs, key=lambda one: one.name):
        data: bytes = tensor.data
        parts.append((tensor.name, tensor.shape, data[:: 1 + len(data) // HASHED_BYTES]))
    # Python's hash of bytes is keyed for each process (SipHash), so that a client cannot make
    # inputs collide to keep others from being compared.
    return hash(tuple(parts))
