"""Rounds: the executions that one request of an iterative sequence takes."""

from inferd.core.request import Round
from inferd.errors import BackendFailed, InferdError
from inferd.schedulers.execution.job import Answer
from inferd.schedulers.sequence_parts.instances import SequenceInstance
from inferd.schedulers.sequence_parts.live import SequenceStep


def note_round(
    instance: SequenceInstance, step: SequenceStep, answer: Answer, *, is_alone: bool
) -> None:
    """Count one round of a request; the request's time spans all its rounds."""
    request = step.request
    if is_alone:
        instance.execution.count_round(request, failed=isinstance(answer, InferdError))
    step.began_ns = step.began_ns or request.started_ns
    # The next round has one of its own.
    request.started_ns, request.computing_ns = step.began_ns, 0


def wrong_round(
    round: Round, model: str, *, iterates: bool, is_decoupled: bool
) -> InferdError | None:
    """Return an error for a round that the configuration of `model` does not allow, else None."""
    if not iterates:
        return BackendFailed(
            f"model '{model}' wants a request again, which its configuration does not allow: "
            f"sequence_batching has no iterative_sequence"
        )
    if not is_decoupled and (round.answers or not round.again):
        given = len(round.answers)
        return BackendFailed(
            f"model '{model}' gave {given} answers in one round, but it is not decoupled: "
            f"it gives one answer at the end"
        )
    return None
