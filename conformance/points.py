"""The checklist: how a test names the points it proves, and how these are counted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pytest

LAST = 123
"""The numbered points run from 1 to this; points of the specs beyond them are S1, S2, ..., those of
the TensorRT Inference Server API T1, T2, ..."""

SECRET = ("conformance-key", "open sesame")
"""The header that opens what a server under test restricts, and its value."""


def point(
    number: int | str, level: Literal["MUST", "SHOULD"], text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as (part of) the proof of one point; `text` says what the point asks."""
    return pytest.mark.point(str(number), level, text)


@dataclass
class Point:
    """One point and how its tests went; `failures` are the node ids of the red ones."""

    id: str
    level: str
    text: str
    tests: int = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Return passed, failed or not run."""
        if self.failures:
            return "failed"
        return "passed" if self.passed and self.passed == self.tests else "not run"


def order(point_id: str) -> tuple[str, int]:
    """Sort key: numbered points first, then the S and the T points."""
    return point_id.rstrip("0123456789"), int(point_id.lstrip("ST"))


@dataclass
class Tally:
    """Every point the collected tests claim, with its outcome."""

    points: dict[str, Point] = field(default_factory=dict)

    def claim(self, marks: list[pytest.Mark]) -> None:
        """Count one collected test towards the points of its marks."""
        for mark in marks:
            point_id, level, text = mark.args
            known = self.points.setdefault(point_id, Point(point_id, level, text))
            if (known.level, known.text) != (level, text):
                msg = f"point {point_id} is declared twice, with different words"
                raise pytest.UsageError(msg)
            known.tests += 1

    def record(self, marks: list[pytest.Mark], report: pytest.TestReport) -> None:
        """Count one finished test."""
        for mark in marks:
            known = self.points[mark.args[0]]
            if report.failed:
                known.failures.append(report.nodeid)
            elif report.skipped:
                known.reasons.append(str(report.longrepr))
            elif report.when == "call":
                known.passed += 1

    def unexplained(self) -> list[str]:
        """Return the numbered points that no test proves."""
        return [str(n) for n in range(1, LAST + 1) if str(n) not in self.points]

    def rows(self) -> list[dict[str, object]]:
        """Return one row for each point, in order, as the JSON report holds them."""
        rows: dict[str, dict[str, object]] = {
            known.id: {
                "point": known.id,
                "level": known.level,
                "text": known.text,
                "state": known.state,
                "tests": known.tests,
                "failures": known.failures,
                "reasons": known.reasons,
            }
            for known in self.points.values()
        }
        return [rows[key] for key in sorted(rows, key=order)]
