"""The call of the logging extension: reports and changes the log settings."""

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.config.options.log import LogChange, LogSettings
from inferd.core.change import ChangeLog
from inferd.engine.engine import Engine
from inferd.wire.v2 import logging as wire


async def log_settings(engine: Engine, change: LogChange | None = None) -> LogSettings:
    """Return all settings, after making `change`."""
    if change is not None:
        await engine.changes.change(ChangeLog(change))
    return engine.log.settings


CALLS = (
    ApiCall(
        "logging",
        "logging",
        Rest(
            "GET",
            "/v2/logging",
            "logSettings",
            "What is logged.",
            "LogSettings",
            encode=wire.encode_log_settings,
        ),
        Rest(
            "POST",
            "/v2/logging",
            "changeLogSettings",
            "Change what is logged.",
            "LogSettings",
            "LogChange",
            (400, 501),
            may_be_empty=False,
            decode=wire.decode_log_request,
            encode=wire.encode_log_settings,
        ),
        Rpc("LogSettings", wire.decode_log_message, wire.encode_log_message),
        function=log_settings,
    ),
)
