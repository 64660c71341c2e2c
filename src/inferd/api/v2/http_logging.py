"""The URL of the logging extension."""

from inferd.http.message import HttpAnswer, HttpRequest
from inferd.http.router import Route
from inferd.observe.log import Log
from inferd.wire.v2 import logging as v2_logging


class LoggingRoutes:
    """Reports and changes the log settings (Logging extension)."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v2/logging", "logging", self.settings),
            Route("POST", "/v2/logging", "logging", self.change),
        ]

    async def settings(self, _request: HttpRequest) -> HttpAnswer:
        """Return the settings."""
        return HttpAnswer(200, [v2_logging.encode_log_settings(self._log.settings)])

    async def change(self, request: HttpRequest) -> HttpAnswer:
        """Change the settings that the body names; return all."""
        self._log.change(v2_logging.decode_log_request(request.body))
        return HttpAnswer(200, [v2_logging.encode_log_settings(self._log.settings)])
