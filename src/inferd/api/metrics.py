"""The URL of the metrics: /metrics, generated anew for each request."""

import asyncio
import logging
from functools import partial
from itertools import chain

from inferd.aio.offload import Work
from inferd.api.routes import TableRoutes
from inferd.config.options.metrics import MetricsSettings
from inferd.engine.engine import Engine
from inferd.errors import InferdError
from inferd.http.failure import FailureLog
from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.observe.crash.history import History, crash_families
from inferd.observe.devices import Devices
from inferd.observe.family import Family
from inferd.observe.prometheus import CONTENT_TYPE, exposition

log = logging.getLogger("inferd.metrics")


class MetricsRoutes(TableRoutes):
    """Answers on the metrics port, to anybody who can reach it, as scrapers expect.

    `lines` are for a port that has the metrics beside other things; its guards count there.

    Devices that do not respond within `devices_timeout_s` are left out: the other metrics are
    needed all the more then. `history` has the crashes of earlier processes.
    """

    def __init__(
        self,
        engine: Engine,
        settings: MetricsSettings,
        devices: Devices,
        devices_timeout_s: float = 2.0,
        history: History | None = None,
    ) -> None:
        self._whole = engine.whole
        # On whatever port the metrics are, they count for the whole server.
        self._whole.sources.append(partial(crash_families, history or History()))
        self._settings = settings
        self._devices = devices
        self._devices_timeout_s = devices_timeout_s
        self._offload = engine.offload
        self.lines = (Route("GET", "/metrics", "statistics", self.metrics),)
        super().__init__(self.lines, engine.tracer, FailureLog(log))

    async def metrics(self, _request: HttpRequest) -> HttpAnswer:
        """Return all metrics. Other connections get their turns between the pieces of the text."""
        await self._whole.read_process()
        total = await self._whole.sum()
        # Devices last, while nothing else waits for them.
        others = total.families() + await self._ask_devices()
        text = exposition(total.observed(), self._settings, others, self._devices.gpu_uuid)
        # Never joined: to copy megabytes would take as long as many pieces.
        answer = HttpAnswer(200, [], CONTENT_TYPE)
        for piece in chain(text, *(family.pieces() for family in total.customs())):
            answer.buffers.append(piece.encode())
            await asyncio.sleep(0)
        return answer

    async def _ask_devices(self) -> list[Family]:
        try:
            async with asyncio.timeout(self._devices_timeout_s):
                return await self._offload.run(Work.DEVICE_METRICS, self._devices.families)
        except (TimeoutError, InferdError):
            log.warning("the devices do not tell how they are: metrics without them")
            return []
