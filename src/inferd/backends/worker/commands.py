"""Commands: what a worker's model has the server do, apart from requests to other models.

A model's initialize may load another model, whose initialize may load a third. In a cycle all
would wait for each other until their starts time out, so the load that would close the cycle
fails instead. All of this happens on the event loop.
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from inferd.backends.worker.document import Command, Metered
from inferd.backends.worker.replies import Replies
from inferd.core.interfaces import BackendContext
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.errors import InferdError, InvalidRequest, ModelNotFound, Unsupported, foreign_text

if TYPE_CHECKING:
    from inferd.observe.family import CustomMetric


class Loads:
    """The models of one backend that wait for loads while they are loaded, and those loads."""

    def __init__(self) -> None:
        self._awaited: defaultdict[str, list[str]] = defaultdict(list)  # one entry per instance

    @contextmanager
    def waiting(self, model: str, wanted: str) -> Iterator[None]:
        """Note, while entered, that the initialize of `model` waits for `wanted` to be loaded.

        Raises InvalidRequest if `wanted` waits for `model`, directly or through others.
        """
        way = self._way(wanted, model)
        if way:
            circle = " -> ".join((model, *way))
            msg = f"models whose initialize loads the next wait for each other: {circle}"
            raise InvalidRequest(msg)
        self._awaited[model].append(wanted)
        try:
            yield
        finally:
            # One of several: each instance of a model runs initialize, and may load the same.
            self._awaited[model].remove(wanted)
            if not self._awaited[model]:
                del self._awaited[model]

    def _way(self, start: str, end: str) -> list[str]:
        """Return the models from `start` to `end`, each waiting for the next; [] if no path."""
        ways, seen = [[start]], {start}
        while ways:
            way = ways.pop()
            if way[-1] == end:
                return way
            following = set(self._awaited.get(way[-1], ())) - seen
            seen |= following
            ways += [[*way, one] for one in following]
        return []


_Metric = tuple[int, str, dict[str, str], list[float] | None]
"""The arguments of "metric": its number in the worker, its family, labels and buckets."""


class Commands:
    """The commands of one worker, answered by `replies`.

    `begin` runs a coroutine that answers the command of a number.
    `loads` are the loads that models of this backend wait for while they start.
    """

    def __init__(
        self,
        context: BackendContext,
        loads: Loads,
        replies: Replies,
        begin: Callable[[int, Coroutine[object, None, None]], None],
    ) -> None:
        self._loads = loads
        self._context = context
        self._replies = replies
        self._begin = begin
        self._metrics: dict[int, CustomMetric] = {}

    def end(self) -> None:
        """Drop the metrics: the worker that changes them has ended."""
        self._metrics.clear()

    def apply(self, metered: Metered) -> None:
        """Change a metric."""
        if metric := self._metrics.get(metered.number):
            metric.apply(metered.verb, metered.value)

    def run(self, number: int, command: Command) -> None:
        """Carry out the command `number`, and answer it."""
        if command.verb in ("load", "unload"):
            self._begin(number, self._control(number, command))
            return
        with self._refusing(number):
            value = self._value(command.verb, command.arguments)
            self._replies.reply(number, [True, ["value", value]])

    @contextmanager
    def _refusing(self, number: int) -> Iterator[None]:
        """Answer the command `number` with the error, if there is one."""
        try:
            yield
        except InferdError as error:
            self._replies.refuse(number, error)
        # The arguments may be anything, and without an answer the model would wait forever.
        except Exception as error:  # noqa: BLE001
            self._replies.refuse(number, InvalidRequest(foreign_text(error)))

    def _value(self, verb: str, arguments: list[Any]) -> Any:
        metrics = self._context.metrics
        if verb == "is_ready":
            return self._is_ready(*arguments)
        if metrics is None:
            raise Unsupported("there is no server here that has metrics")
        if verb == "metric_family":
            metrics.add_family(*msgspec.convert(arguments, tuple[str, str, str]))
            return None
        if verb == "metric":
            # Converted, as the document has any JSON there: what the model gave may be of any kind.
            number, family, labels, bounds = msgspec.convert(arguments, _Metric)
            self._metrics[number] = metrics.metric(family, labels, bounds or ())
            return None
        found = self._metrics[arguments[0]].value
        return found if isfinite(found) else str(found)  # JSON has no infinity

    def _is_ready(self, name: str, version: str) -> bool:
        control = self._context.control
        if control is None:
            return False
        with suppress(ModelNotFound):
            return control.is_model_ready(name, version)
        return False

    async def _control(self, number: int, command: Command) -> None:
        replies, control = self._replies, self._context.control
        with self._refusing(number):
            if control is None:
                raise Unsupported("there is no server here that could load models")
            model = replies.caller.plan.model
            is_starting = replies.caller.reads_on is None
            # It would wait for the load that waits for it.
            if command.arguments[0] == model and is_starting:
                msg = f"model '{model}' is being loaded, and cannot {command.verb} itself"
                raise InvalidRequest(msg)
            if command.verb == "unload":
                name, dependents = command.arguments
                await control.unload(UnloadRequest(name, dependents))
            else:
                name, config, files = command.arguments
                # Hexadecimal, as documents are JSON and files are bytes; loads are rare.
                sent = {path: bytes.fromhex(content) for path, content in files.items()}
                request = LoadRequest(name, config or None, sent)
                # Only while it starts does its own load wait for the other.
                with self._loads.waiting(model, name) if is_starting else nullcontext():
                    await control.load(request)
            replies.reply(number, [True, ["value", None]])
