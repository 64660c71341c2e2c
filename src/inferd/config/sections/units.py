"""What options of one kind share: their limits, and the word that help prints for the value."""

from typing import Any

Limits = dict[str, Any]
"""What `option` is given of an option's values, by name."""

LONGEST = 2**31 - 1
"""The limit of system timers and of Triton's options."""

PORT: Limits = {"minimum": 0, "maximum": 65535, "word": "PORT"}
SECONDS: Limits = {"minimum": 0, "maximum": LONGEST, "word": "SECONDS"}
TIMEOUT: Limits = {"minimum": 0.1, "maximum": LONGEST, "word": "SECONDS"}
MILLISECONDS: Limits = {"minimum": 0, "maximum": LONGEST, "word": "MILLISECONDS"}
COUNT: Limits = {"minimum": 1}
PINGS: Limits = {"minimum": 0, "maximum": LONGEST, "is_raised": True}
HEAD: Limits = {"minimum": 1024, "maximum": LONGEST}
"""The least that clients send is some hundred bytes; HTTP/2 tells clients the limit in 32 bits."""
