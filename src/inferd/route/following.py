"""Follows a source of places for as long as the route lives, whatever becomes of the source."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from inferd.errors import InferdError
from inferd.route.metrics import RouteCounts
from inferd.route.place import Place, PlaceState, Source

LOGGER = logging.getLogger("inferd")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
"""Between two tries of a source that fails."""


async def follow(
    source: Source,
    counts: RouteCounts,
    take: Callable[[tuple[Place, ...]], None],
    first_pause_s: float = FIRST_PAUSE_S,
) -> NoReturn:
    """Give all places to `take` whenever any has changed.

    When the source fails, or has a mistake in it, the last places stay, and it is tried again.
    """
    pause_s, said = first_pause_s, ""
    while True:
        try:
            async for places in source.follow():
                if said:
                    LOGGER.info("%s tells its places again", source.name)
                # It works: the next failure begins with short pauses.
                pause_s, said = first_pause_s, ""
                counts.is_source_failing = False
                # A place that sleeps is no server.
                counts.place_count = sum(one.state is not PlaceState.ASLEEP for one in places)
                take(places)
        # Whatever a source raises must not end the route.
        except Exception as error:
            counts.is_source_failing = True
            counts.source_failure_count += 1
            is_expected = isinstance(error, InferdError)
            text = error.message if isinstance(error, InferdError) else repr(error)
            # Once, not with each try.
            if text != said:
                said = text
                trace = None if is_expected else error
                LOGGER.error("the places stay as they were: %s", text, exc_info=trace)  # noqa: TRY400  see trace
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
