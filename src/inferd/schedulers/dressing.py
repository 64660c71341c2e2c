"""Dressing: the inputs a scheduler adds to requests of a sequence, and what it keeps of answers."""

from copy import copy

from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import InferdError
from inferd.schedulers.batch import BatchPlan
from inferd.schedulers.controls import Controls
from inferd.schedulers.job import Answer
from inferd.schedulers.live import LiveSequence, Step
from inferd.schedulers.states import States


class Dressing:
    """What a model's configuration says about the tensors of its requests."""

    def __init__(self, plan: BatchPlan, controls: Controls, states: States) -> None:
        self.plan = plan
        self.controls = controls
        self.states = states

    def dress(self, step: Step) -> None:
        """Give a request the scheduler's inputs, and have it ask for the states that come."""
        request, sequence = step.request, step.sequence
        if step.told.start:
            sequence.state = self.states.initial
        request.sequence = step.told
        request.likeness = None  # it says more now than others like it
        request.inputs = [*step.inputs, *self.controls.of(step.told), *sequence.state]
        if request.outputs:
            named = {wanted.name for wanted in request.outputs}
            missing = [name for name in self.states.output_names if name not in named]
            request.outputs = [*request.outputs, *map(WantedOutput, missing)]
        step.kind = self.plan.kind(request)

    def undress(self, step: Step) -> None:
        """Give the caller its request back as it was."""
        request = step.request
        request.inputs, request.outputs, request.sequence = step.inputs, step.outputs, step.sent

    def keep(self, sequence: LiveSequence, answer: Answer) -> Answer:
        """Keep the state that comes with an answer; return what the caller gets."""
        if isinstance(answer, InferdError):
            return answer
        try:
            sequence.state = self.states.kept(answer)
        except InferdError as error:
            return error
        return answer

    def filler(self, step: Step) -> InferRequest:
        """Return what stands in a row that has no request: a copy of `step`, said to be absent."""
        filler = copy(step.request)
        absent = self.controls.absent
        states = filler.inputs[len(step.inputs) + len(absent) :]
        filler.inputs = [*step.inputs, *absent, *states]
        filler.outputs = [WantedOutput(wanted.name) for wanted in filler.outputs]
        filler.sequence = None  # who looks there must not take it for another step
        filler.spans = None  # nothing of it goes to the client's shared memory
        return filler
