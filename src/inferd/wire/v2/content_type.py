"""BinaryType: the Content-Type of a cloud platform's requests that carry binary tensor data.

Such a platform passes on only a few headers, so one of them must say where the JSON ends.
"""

import re

from inferd.errors import InvalidRequest

_SIZE = b"json-header-size"


class BinaryType:
    """A media type called `name`, with its parameter json-header-size."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = name.encode().lower()
        self._pattern = re.compile(
            rb"\s*%b\s*;\s*%b\s*=\s*\"?([0-9]{1,19})\"?\s*" % (re.escape(self._start), _SIZE)
        )

    def json_size(self, content_type: bytes) -> bytes | None:
        """Return the digits of the JSON's size, None when `content_type` is another type.

        Raises InvalidRequest when it is this type but does not give the size.
        """
        # Media types and parameters have no case (RFC 9110, section 8.3.1).
        value = content_type.strip().lower()
        if value.partition(b";")[0].rstrip() != self._start:
            return None
        found = self._pattern.fullmatch(value)
        if found is None:
            shown = content_type[:200].decode("latin-1")
            msg = f"Content-Type is '{shown}', expected {self._name};{_SIZE.decode()}=BYTES"
            raise InvalidRequest(msg)
        return found[1]

    def with_size(self, digits: bytes) -> bytes:
        """Return the Content-Type of a body whose JSON has `digits` bytes."""
        return b"%b;%b=%b" % (self._start, _SIZE, digits)
