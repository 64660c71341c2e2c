"""EnsembleRun: how far a request to an ensemble has come."""

from typing import TYPE_CHECKING

from inferd.core.request import InferRequest, InferResponse
from inferd.schedulers.ensemble_parts.plan import Step
from inferd.tensor.tensor import Tensor

if TYPE_CHECKING:
    from inferd.schedulers.ensemble_parts.sequence_order import Ticket


class EnsembleRun:
    """A request to the ensemble, the tensors there are so far, by name, and if a step made any.

    With a `ticket` it belongs to a sequence, and takes its turn at steps that know these.
    """

    __slots__ = ("has_begun", "request", "tensors", "ticket")

    def __init__(self, request: InferRequest, tensors: dict[str, Tensor]) -> None:
        self.request = request
        self.tensors = tensors
        self.has_begun = False
        self.ticket: Ticket | None = None

    def part(self) -> "EnsembleRun":
        """Return a copy of the run that goes on with one of several answers."""
        return EnsembleRun(self.request, dict(self.tensors))

    def take(self, step: Step, response: InferResponse) -> None:
        """Store the outputs of a step under the ensemble's tensor names."""
        self.has_begun = True
        names = step.outputs
        for tensor in response.outputs:
            outer = names.get(tensor.name)
            if outer is not None:
                self.tensors[outer] = tensor
