"""ExecutionTime: how long executions take, apart from other work on the same machine.

A model that computes in its own thread is measured in CPU time. On a machine with other work to
do, such as serving the clients of a batch, wall time grows with what the others get; long
executions are interrupted more often than short ones, so large batches would look expensive.

A model that waits, for a GPU or another process, is measured in wall time. The two are told apart
by the ratio of CPU time to wall time when nothing interrupts, the largest seen recently.

Rejected: the time that the system reports a thread as ready but not running. It is exact, but
takes two more system calls per execution, and not every system reports it.
"""

COMPUTES = 0.75
"""From this ratio of CPU time to wall time on, a model counts as computing in its thread."""

FADES = 1 / 256
"""The fraction by which the largest ratio decays with each execution."""


class ExecutionTime:
    """Measures the executions of one model."""

    def __init__(self) -> None:
        self._share = 0.0

    def took_ns(self, wall_ns: int, cpu_ns: int) -> int:
        """Return how long an execution took; `cpu_ns` of its thread is 0 where unknown."""
        if wall_ns <= 0:
            return 0
        share = cpu_ns / wall_ns
        # Interruptions only lower the ratio, so the largest one is the model's own; it fades,
        # because models change.
        self._share = max(share, self._share - FADES * self._share)
        return min(wall_ns, cpu_ns) if self._share >= COMPUTES else wall_ns
