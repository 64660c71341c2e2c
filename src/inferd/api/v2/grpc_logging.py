"""The gRPC method of the logging extension."""

from typing import Any

from inferd.http.grpc.handler import Call, Method, Unary
from inferd.observe.log import Log
from inferd.wire.v2 import logging as v2_logging


class LoggingMethods:
    """Reports and changes the log settings (Logging extension)."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {"LogSettings": Unary(self.log_settings)}

    async def log_settings(self, data: bytes, call: Call) -> list[Any]:
        """Change the settings that the message names, if any; return all."""
        self._log.change(v2_logging.decode_log_message(data))
        return [v2_logging.encode_log_message(self._log.settings)]
