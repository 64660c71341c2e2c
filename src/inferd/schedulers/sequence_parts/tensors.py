"""SequenceTensors: the inputs that requests of a sequence get, and their states."""

from copy import copy

from inferd.core.request import InferRequest, InferResponse, Round, WantedOutput
from inferd.errors import InferdError
from inferd.schedulers.execution.batch import BatchPlan
from inferd.schedulers.execution.job import Answer
from inferd.schedulers.sequence_parts.controls import Controls
from inferd.schedulers.sequence_parts.live import LiveSequence, SequenceStep
from inferd.schedulers.sequence_parts.states import States


class SequenceTensors:
    """The tensors that a model's configuration adds to its requests."""

    def __init__(self, plan: BatchPlan, controls: Controls, states: States) -> None:
        self.plan = plan
        self.controls = controls
        self.states = states

    def add_to(self, step: SequenceStep) -> None:
        """Add the scheduler's inputs to a request, and the next states to its wanted outputs."""
        request, sequence = step.request, step.sequence
        if step.shown.start:
            sequence.state = self.states.initial
        request.sequence = step.shown
        request.batch_key = None  # it now differs from the requests it was like
        request.inputs = [*step.inputs, *self.controls.of(step.shown), *sequence.state]
        if request.outputs:
            named = {wanted.name for wanted in request.outputs}
            missing = [name for name in self.states.output_names if name not in named]
            request.outputs = [*request.outputs, *map(WantedOutput, missing)]
        step.kind = self.plan.kind(request)

    def remove_from(self, step: SequenceStep) -> None:
        """Restore the request to what the caller sent."""
        request = step.request
        request.inputs, request.outputs, request.sequence = step.inputs, step.outputs, step.sent

    def store_state(self, sequence: LiveSequence, answer: Answer) -> Answer:
        """Store the state in an answer; return the answer for the caller."""
        if isinstance(answer, InferdError):
            return answer
        try:
            states = [self.states.taken_from(one) for one in _with_states(answer)]
        except InferdError as error:
            return error
        if states:
            sequence.state = states[-1]
        return answer

    def filler(self, step: SequenceStep) -> InferRequest:
        """Return a filler for a row without a request: a copy of `step` marked as absent."""
        filler = copy(step.request)
        absent = self.controls.absent
        states = filler.inputs[len(step.inputs) + len(absent) :]
        # The client's inputs stay, since the model gets a full batch; what says that the row is
        # empty are the controls.
        filler.inputs = [*step.inputs, *absent, *states]
        filler.outputs = [WantedOutput(wanted.name) for wanted in filler.outputs]
        filler.sequence = None  # it must not be taken for another step of the sequence
        filler.spans = None  # none of it goes to the client's shared memory
        return filler


def _with_states(answer: InferResponse) -> list[InferResponse]:
    """Return what holds the states: an answer itself; if a round has no outputs, its answers.

    A model.py gives the states with its answers. Where it has none in a round, the states stay.
    """
    if not isinstance(answer, Round) or answer.outputs:
        return [answer]
    return [one for one in answer.answers if one.outputs]
