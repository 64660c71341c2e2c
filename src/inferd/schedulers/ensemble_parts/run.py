"""EnsembleRun: how far a request to an ensemble has come."""

from typing import TYPE_CHECKING

from inferd.core.request import UNSEQUENCED, InferRequest, InferResponse, Sequence
from inferd.schedulers.ensemble_parts.plan import Step
from inferd.tensor.tensor import Parameters, Tensor

if TYPE_CHECKING:
    from inferd.schedulers.ensemble_parts.sequence_order import Ticket


class EnsembleRun:
    """A request to the ensemble, the tensors there are so far, by name, and if a step made any.

    With a `ticket` it belongs to a sequence, and takes its turn at steps that know these. Its
    `sequence` is that of the request, unless a step's answer has named another.
    """

    __slots__ = ("has_begun", "request", "sequence", "tensors", "ticket")

    def __init__(self, request: InferRequest, tensors: dict[str, Tensor]) -> None:
        self.request = request
        self.tensors = tensors
        self.sequence = request.sequence
        self.has_begun = False
        self.ticket: Ticket | None = None

    def part(self) -> "EnsembleRun":
        """Return a copy of the run that goes on with one of several answers."""
        # Each answer goes its own way from here; the tensors themselves are never written.
        part = EnsembleRun(self.request, dict(self.tensors))
        part.sequence = self.sequence
        return part

    def take(self, step: Step, response: InferResponse) -> None:
        """Store the outputs of a step under the ensemble's tensor names."""
        self.has_begun = True
        if response.parameters:
            self._follow(response.parameters)
        names = step.outputs
        for tensor in response.outputs:
            outer = names.get(tensor.name)
            if outer is not None:
                self.tensors[outer] = tensor

    def _follow(self, said: Parameters) -> None:
        """Go on with the sequence that a step's answer names, if it names any (Triton)."""
        if said is UNSEQUENCED or said.keys().isdisjoint(UNSEQUENCED):
            return
        now = self.sequence
        id = said.get("sequence_id", now.id if now is not None else 0)
        start, end = said.get("sequence_start", False), said.get("sequence_end", False)
        # JSON's true is an int in Python.
        if isinstance(id, int | str) and id is not True and (id or start or end):
            self.sequence = Sequence(id, bool(start), bool(end))
