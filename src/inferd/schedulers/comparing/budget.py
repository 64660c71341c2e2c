"""ComparisonBudget: how much time of a model's instances comparisons may take."""

SHARE = 1 / 8
"""The most that comparisons take of the time that the model spends on clients' requests."""

MOST_RUN_NS = 1_000_000_000
"""A run for a comparison that would take longer than this has no more than two requests."""

SAVED_NS = 200_000_000
"""The most time that is saved up, or half of what one request takes if that is more."""


class ComparisonBudget:
    """Earns time while clients' requests run, each by itself, and spends it on comparisons."""

    def __init__(self) -> None:
        self._left_ns = 0.0
        self._row_ns = 0.0  # what a row of a client's request takes, about

    def earn(self, took_ns: int, rows: int) -> None:
        """Note that a client's request of so many rows ran by itself for `took_ns`."""
        row_ns = took_ns / max(1, rows)
        # A moving average over about eight requests follows a load that changes, and not a single
        # outlier.
        self._row_ns += (row_ns - self._row_ns) / 8 if self._row_ns else row_ns
        # Savings are bounded, or a quiet night would be spent on comparisons when the clients come
        # back.
        most_ns = max(SAVED_NS, 4 * took_ns)
        self._left_ns = min(self._left_ns + SHARE * took_ns, most_ns)

    @property
    def has_some(self) -> bool:
        """Whether anything is left, so that it makes sense to prepare a comparison."""
        return self._left_ns > 0

    def allows(self, rows: int) -> bool:
        """Tell whether a run of so many rows can be paid, if it costs what they cost alone."""
        return 0 < self.expected_ns(rows) <= self._left_ns

    def expected_ns(self, rows: int) -> float:
        """Return how long so many rows would take, each run by itself."""
        return self._row_ns * rows

    def most_rows(self) -> int:
        """Return how many rows may run together for a comparison: at least two."""
        return max(2, int(MOST_RUN_NS / self._row_ns)) if self._row_ns else 2

    def spend(self, took_ns: float) -> None:
        """Note that a comparison took so long."""
        self._left_ns -= took_ns
