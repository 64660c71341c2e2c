"""Waking: models whose places sleep are known, and a request for one of them starts a place."""

import time
from collections.abc import Callable, Iterable
from urllib.parse import unquote

from inferd.route.place import Place, PlaceState

RETRY_AFTER_S = 5
"""When a client that has woken a place is told to ask again."""

WAKE_PATH = "/inferd-route/wake"
WAKE_METHOD = "/inferd.Route/Wake"
MODEL_HEADER = "inferd-asleep"
"""Where HAProxy sends requests for such a model, and how it names the model; see haproxy.cfg."""

_PAUSE_S = 1.0
"""A place is not woken more often than this."""


class Sleepers:
    """The places that sleep. `wake` is called with the name of one that is asked for."""

    def __init__(
        self, wake: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wake = wake
        self._clock = clock
        self._names: dict[str, str] = {}
        self._woken_s: dict[str, float] = {}

    @property
    def models(self) -> frozenset[str]:
        """The models that they have."""
        return frozenset(self._names)

    def without(self, places: Iterable[Place]) -> tuple[Place, ...]:
        """Return those of all `places` that do not sleep, and know the others from now on."""
        all_places = tuple(places)
        self._names = {
            model: one.name
            for one in all_places
            if one.state is PlaceState.ASLEEP
            for model in one.models or ()
        }
        return tuple(one for one in all_places if one.state is not PlaceState.ASLEEP)

    def wake(self, header: str) -> str:
        """Wake who has the model that HAProxy names in a header; return what its client is told."""
        # HAProxy escapes what a header cannot have.
        model = unquote(header)
        name, now = self._names.get(model), self._clock()
        # Many clients may ask at once, and a source is not to be told each time.
        if name is not None and now - self._woken_s.get(name, -_PAUSE_S) >= _PAUSE_S:
            self._woken_s[name] = now
            self._wake(name)
        return (
            f"no place has the model '{model}' now, and one is being started: "
            f"ask again in {RETRY_AFTER_S} seconds (inferd route)"
        )
