"""PayloadEvent: one payload as a CloudEvent, like those of KServe's logger.

Its data are a body of V2 over REST: JSON, or JSON with binary data behind it, whose beginning
`inferenceheadercontentlength` tells (docs/guide/payload_log.md).
"""

import json
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

import pybase64

# The types of KServe's logger, which its users filter by.
REQUEST = "org.kubeflow.serving.inference.request"
RESPONSE = "org.kubeflow.serving.inference.response"

JSON = "application/json"
BINARY = "application/octet-stream"

# Spaces, quotes and percent signs are escaped, and all that is not printable ASCII (CloudEvents
# HTTP binding, section 3.1.3.2).
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class PayloadEvent(NamedTuple):
    """A payload: `data` are a copy, which may be cut, of `full_size` bytes.

    `json_size` is None if all of it is JSON. `seconds` is a time.time.
    """

    id: str
    type: str
    seconds: float
    protocol: str
    model: str
    version: str
    data: bytes
    json_size: int | None
    full_size: int

    @property
    def is_cut(self) -> bool:
        """Whether the data are not all there."""
        return len(self.data) < self.full_size

    def attributes(self) -> dict[str, str]:
        """Return the attributes of the event, without those of where it was made."""
        created = datetime.fromtimestamp(self.seconds, UTC).replace(tzinfo=None)
        found = {
            "specversion": "1.0",
            "id": self.id,
            "type": self.type,
            "time": created.isoformat("T", "milliseconds") + "Z",
            "datacontenttype": JSON if self.json_size is None else BINARY,
            "protocol": self.protocol,
            "modelname": self.model,
        }
        if self.version:
            found["modelversion"] = self.version
        if self.json_size is not None:
            found["inferenceheadercontentlength"] = str(self.json_size)
        if self.is_cut:
            found |= {"truncated": "true", "fullsize": str(self.full_size)}
        return found


def as_headers(attributes: dict[str, str]) -> dict[str, str]:
    """Return `attributes` as headers of HTTP (CloudEvents, HTTP Protocol Binding, binary mode)."""
    headers = {
        f"ce-{name}": quote(value, safe=_PLAIN)
        for name, value in attributes.items()
        if name != "datacontenttype"
    }
    return headers | {"Content-Type": attributes["datacontenttype"]}


def as_line(event: PayloadEvent, attributes: dict[str, str]) -> list[bytes]:
    """Return an event as one line (CloudEvents, JSON Event Format), in parts."""
    # Without its closing brace: the data follow as they came, without being read again.
    head = json.dumps(attributes, separators=(",", ":")).encode()[:-1]
    if event.json_size is None and not event.is_cut and is_plain(event.data):
        # Between its tokens JSON may have line breaks, and within them it has none.
        data = event.data.replace(b"\n", b" ").replace(b"\r", b" ")
        return [head, b',"data":', data, b"}\n"]
    return [head, b',"data_base64":"', pybase64.b64encode(event.data), b'"}\n']


def is_plain(data: bytes) -> bool:
    """Return whether every reader of JSON takes `data`, which the server has read as JSON."""
    # The server reads these, as Triton's JSON has them, but JSON does not have them; in texts they
    # are rare, and base64 does no harm.
    if not data or b"NaN" in data or b"Infinity" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
