"""What options of one kind share: their limits, and the word that help prints for the value."""

from typing import Any

LONGEST = 2**31 - 1
"""The limit of system timers and of Triton's options."""

PORT: dict[str, Any] = {"minimum": 0, "maximum": 65535, "word": "PORT"}
SECONDS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "word": "SECONDS"}
TIMEOUT: dict[str, Any] = {"minimum": 0.1, "maximum": LONGEST, "word": "SECONDS"}
MILLISECONDS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "word": "MILLISECONDS"}
COUNT: dict[str, Any] = {"minimum": 1}
PINGS: dict[str, Any] = {"minimum": 0, "maximum": LONGEST, "is_raised": True}
HEAD: dict[str, Any] = {"minimum": 1024, "maximum": LONGEST}
"""The least that clients send is some hundred bytes; HTTP/2 tells clients the limit in 32 bits."""
