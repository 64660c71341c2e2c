"""The URL of the metrics port: /metrics, written anew each time somebody asks."""

import asyncio
import logging
from typing import TYPE_CHECKING

from inferd.config.metrics import MetricsSettings
from inferd.engine.engine import Engine
from inferd.errors import InferdError
from inferd.observe.devices import Devices
from inferd.observe.family import Family
from inferd.observe.process import process_families
from inferd.observe.prometheus import CONTENT_TYPE, exposition
from inferd.transport.access import Headers
from inferd.transport.failure import FailureLog
from inferd.transport.http_message import HttpAnswer, HttpError, HttpRequest
from inferd.transport.http_router import Route, Router
from inferd.transport.http_routes import not_found, refusal, wrong_method
from inferd.transport.lane import Lane

if TYPE_CHECKING:
    from inferd.transport.header_forward import HeaderForward

log = logging.getLogger("inferd.metrics")


class MetricsRoutes:
    """Answers on the metrics port. The wall: nothing raised inside gets past `answer`.

    Devices that do not tell in `devices_timeout_s` are left out: the rest is wanted all the more
    then.
    """

    def __init__(
        self,
        engine: Engine,
        settings: MetricsSettings,
        devices: Devices,
        devices_timeout_s: float = 2.0,
    ) -> None:
        self.is_guarded = False
        self.forward: HeaderForward | None = None
        self.tracer = engine.tracer
        self._engine = engine
        self._settings = settings
        self._devices = devices
        self._devices_timeout_s = devices_timeout_s
        self._reading_process = Lane("inferd-process-metrics")
        self._asking_devices = Lane("inferd-device-metrics")
        self._failures = FailureLog(log)
        self._router = Router([Route("GET", "/metrics", "metrics", self.metrics)])

    def check_access(self, target: bytes, headers: Headers) -> None:
        """Let everybody in who can reach the port, as scrapers expect."""

    def is_inference(self, target: bytes) -> bool:
        """See HttpRoutes.is_inference."""
        return False

    def refusal(self, _request: HttpRequest, error: HttpError | InferdError) -> HttpAnswer:
        """See Routes.refusal."""
        return refusal(error)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer of `request`, whatever happens."""
        try:
            target = self._router.find(request.target)
            if target is None:
                return not_found(request)
            call = target.calls.get(request.method)
            return await call(request) if call else wrong_method(request, target)
        except Exception as error:  # noqa: BLE001  the wall
            self._failures.note(request.target.decode("latin-1"), error)
            return refusal(error)

    async def metrics(self, _request: HttpRequest) -> HttpAnswer:
        """Tell all metrics. Other connections get their turns between the pieces of the text."""
        others = await self._reading_process.run(process_families)
        others += self._engine.capacity.families()
        others += await self._ask_devices()
        others += self._engine.cache_families()
        pieces = []
        text = exposition(self._engine.observed(), self._settings, others, self._devices.gpu_uuid)
        for piece in text:
            pieces.append(piece)
            await asyncio.sleep(0)
        for custom in self._engine.custom_metrics.families():
            pieces.append(custom.text())
            await asyncio.sleep(0)
        return HttpAnswer(200, ["".join(pieces).encode()], CONTENT_TYPE)

    async def _ask_devices(self) -> list[Family]:
        try:
            async with asyncio.timeout(self._devices_timeout_s):
                return await self._asking_devices.run(self._devices.families)
        except (TimeoutError, InferdError):
            log.warning("the devices do not tell how they are: metrics without them")
            return []
