"""Complaints: says in the log how much was lost, without filling it."""

import logging


class Complaints:
    """Logs how much was lost: at the first loss, then whenever the count passes a power of 10."""

    def __init__(self, logger: logging.Logger, text: str) -> None:
        self._logger = logger
        self._text = text
        self._count = 0
        self._next = 1

    def add(self, count: int, reason: str = "") -> None:
        """Add `count` losses, for `reason`."""
        self._count += count
        if self._count >= self._next:
            self._logger.warning("%d %s%s", self._count, self._text, reason)
            while self._next <= self._count:
                self._next *= 10
