"""Meter: how long executions take, without what else the machine does meanwhile.

A model that computes in its own thread is measured in CPU time. On a machine that has other work
to do, and the clients of a batch are such work, its wall time grows with what the others get; long
executions are interrupted more often than short ones, and large batches would look dear.

Who waits, for a GPU or another process, is measured in wall time. The two are told apart by the
share that CPU time has of wall time where nobody interrupts, the largest seen of late.

Refused: the time that the system says a thread was ready and did not run. It is exact, but reading
it is two more system calls for each execution, and not every system tells.
"""

COMPUTES = 0.75
"""The share of CPU time from which on a model is believed to compute in its thread."""

FADES = 1 / 256
"""So much of the largest share is forgotten with each execution."""


class Meter:
    """Measures the executions of one model."""

    def __init__(self) -> None:
        self._share = 0.0

    def took_ns(self, wall_ns: int, cpu_ns: int) -> int:
        """Return what an execution took; `cpu_ns` of its thread is 0 where nobody knows it."""
        if wall_ns <= 0:
            return 0
        share = cpu_ns / wall_ns
        self._share = max(share, self._share - FADES * self._share)
        return min(wall_ns, cpu_ns) if self._share >= COMPUTES else wall_ns
