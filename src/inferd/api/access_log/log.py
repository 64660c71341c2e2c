"""AccessLog: the log with a line for each request, over all protocols."""

from inferd.api.access import KeyRing
from inferd.api.access_log.client import (
    CommonLines,
    JsonLines,
    LineClock,
    LineWriter,
    TextLines,
)
from inferd.http.request_log import ClientLog, RequestLog
from inferd.observe.line_file import LineFile

_FORMS: dict[str, type[LineWriter]] = {
    "text": TextLines,
    "json": JsonLines,
    "common": CommonLines,
}


class AccessLog(RequestLog):
    """Writes lines of one `form`, text, json or common, to `file`.

    `keys` has the API keys, if clients need any: lines give their names.
    """

    def __init__(self, file: LineFile, form: str, keys: KeyRing | None = None) -> None:
        self._file = file
        self._form = _FORMS[form]
        self._keys = keys
        self._clock = LineClock()

    def client(self, address: str, protocol: str) -> ClientLog:
        """See RequestLog."""
        return self._form(self._file, self._clock, address, protocol, self._keys)
