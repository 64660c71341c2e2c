"""Which calls are sent again, and when: never one that may have been executed, unless allowed."""

import random
from typing import Final

from inferd.client.errors import Busy, ClientError, ConnectFailed, ConnectionLost, ServerError
from inferd.client.settings import ClientSettings

# Gives a server time to restart a worker, without keeping a person waiting.
FIRST_S: Final = 0.1
# A server that comes back is found within seconds, and not all at once: see the random factor.
MOST_S: Final = 5.0


def delay_s(
    error: ClientError, attempt: int, *, settings: ClientSettings, is_safe: bool
) -> float | None:
    """Return how long to wait before the call is sent again, None if it is not.

    `attempt` counts from 0; `is_safe` calls may be executed twice.
    """
    if attempt >= settings.retries or not _may_be_sent(
        error, may_repeat=is_safe or settings.resend
    ):
        return None
    wanted_s = error.retry_after_s if isinstance(error, ServerError) else None
    if wanted_s is not None:
        # The server knows better than any backoff (Retry-After; gRPC A6).
        return wanted_s if wanted_s >= 0 else None
    backoff: float = min(FIRST_S * 2**attempt, MOST_S)
    # Clients that were refused at the same moment must not all come back at the same moment.
    return backoff * random.uniform(0.5, 1.0)


def _may_be_sent(error: ClientError, *, may_repeat: bool) -> bool:
    # Nothing was sent, so nothing can have been executed.
    if isinstance(error, ConnectFailed):
        return not error.is_final
    if isinstance(error, ConnectionLost):
        return error.is_untaken or may_repeat
    # A status says that the server did not execute it; a gateway's 503 without more does not.
    if isinstance(error, Busy):
        return error.is_untaken or may_repeat or error.retry_after_s is not None
    return False
