"""How many bytes a decoded request takes besides the bytes it was decoded from."""

from typing import Any

from inferd.core.request import InferRequest


def copied_bytes(request: InferRequest, body: Any) -> int:
    """Return how many bytes the inputs of `request` take besides `body`, which they came in.

    Views of `body` and of the client's shared memory do not count.
    """
    owner = memoryview(body).obj
    shared = {id(span.view) for span in request.spans or () if not span.is_copy}
    size_bytes = 0
    for tensor in request.inputs:
        view = memoryview(tensor.data)
        if view.obj is not owner and id(tensor.data) not in shared:
            size_bytes += view.nbytes
    return size_bytes
