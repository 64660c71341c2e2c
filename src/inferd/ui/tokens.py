"""Tokens: who has read what the server prints at its start may change things in the dashboard.

A token is good once, and gives a session: a link that is seen later, in a terminal or in a log,
opens nothing. Then the next token is printed. All processes of a server make the same tokens of one
secret, and a file tells them which have been used. Sessions are signed and kept nowhere.
"""

import hmac
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

SESSION_S = 12 * 3600
"""How long a session is good."""

_SECRET_BYTES = 32
_TOKEN_LENGTH = 32


class OwnUses:
    """Which tokens of a server of one process have been used, by their numbers."""

    def __init__(self) -> None:
        self._used: set[int] = set()

    def is_used(self, number: int) -> bool:
        """Tell whether a token has been used."""
        return number in self._used

    def use(self, number: int) -> bool:
        """Use a token; return False if it has been used already."""
        is_first = number not in self._used
        self._used.add(number)
        return is_first


class SharedUses:
    """The same for several processes: a file in their private `folder` for each that is used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_used(self, number: int) -> bool:
        """See OwnUses."""
        return self._file(number).exists()

    def use(self, number: int) -> bool:
        """See OwnUses. Raises OSError if the folder cannot be written."""
        try:
            # O_EXCL: of several processes one alone makes the file.
            self._file(number).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _file(self, number: int) -> Path:
        return self._folder / f"ui-token-{number}"


class Tokens:
    """The tokens that are made of one `secret`, one after the other, and the sessions they give."""

    def __init__(
        self, secret: bytes, uses: OwnUses | SharedUses, clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret
        self._uses = uses
        self._clock = clock
        self._number = 0

    def token(self) -> str:
        """Return the token that is good now."""
        while self._uses.is_used(self._number):
            self._number += 1
        return self._signature(f"token {self._number}")

    def unlock(self, token: str) -> str | None:
        """Use `token`, and return a session; None if the token is not good, or not any more."""
        # In constant time, so that nothing can be learned from how long it takes.
        is_good = hmac.compare_digest(self.token().encode(), token.encode(errors="replace"))
        # After the comparison: a wrong guess must not use the token up.
        if not (is_good and self._uses.use(self._number)):
            return None
        # Two sessions that begin in the same second differ.
        until = f"{int(self._clock() + SESSION_S)}.{secrets.token_urlsafe(16)}"
        return f"{until}.{self._signature(f'session {until}')}"

    def is_session(self, session: str) -> bool:
        """Tell whether `session` was given by this server, and is good still."""
        until, _, signature = session.rpartition(".")
        expected = self._signature(f"session {until}")
        if not hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
            return False
        # Signed by this server, so it is a number.
        return self._clock() < int(until.partition(".")[0])

    def _signature(self, text: str) -> str:
        digest = hmac.digest(self._secret, text.encode(errors="replace"), "sha256")
        # 192 bits of the signature.
        return urlsafe_b64encode(digest).decode()[:_TOKEN_LENGTH]


def own_tokens() -> Tokens:
    """Return the tokens of a server of one process."""
    return Tokens(secrets.token_bytes(_SECRET_BYTES), OwnUses())


def shared_tokens(folder: Path) -> Tokens:
    """Return the tokens of a server of several processes, the same in each of them.

    Whichever is first makes the secret. Raises OSError if the folder cannot be read and written.
    """
    file = folder / "ui-secret"
    draft = folder / f"ui-secret-{os.getpid()}-{secrets.token_hex(4)}"
    # Made with its rights before it has content.
    draft.touch(mode=0o600, exist_ok=False)
    draft.write_bytes(secrets.token_bytes(_SECRET_BYTES))
    try:
        os.link(draft, file)  # so nobody ever sees half a secret
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return Tokens(file.read_bytes(), SharedUses(folder))
