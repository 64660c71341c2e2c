"""The link that opens the dashboard, and the tokens in it; a supervisor needs no more."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.ui.tokens import Tokens


def has_dashboard(config: ServerConfig) -> bool:
    """Return whether there is a dashboard."""
    return config.allow_http and config.ui != "off"


def ui_tokens(config: ServerConfig, folder: Path | None = None) -> "Tokens | None":
    """Return the tokens for those who may change things, None if nobody may in the dashboard.

    `folder` is the private one of a server of several processes. Raises InvalidConfig.
    """
    if not has_dashboard(config) or config.ui != "full":
        return None
    from inferd.ui.tokens import own_tokens, shared_tokens

    if folder is None:
        return own_tokens()
    try:
        return shared_tokens(folder)
    except OSError as error:
        msg = f"--ui: cannot keep the token in {folder}: {error.strerror}"
        raise InvalidConfig(msg) from error


def say_link(url: str, tokens: "Tokens | None") -> None:
    """Print the link with which the dashboard may change things, if it may.

    On standard output, never in the log: who can read that is somebody else.
    """
    if tokens is None or not url:
        return
    text = f"The dashboard, with leave to change things (good once): {url}#token={tokens.token()}\n"
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):  # nobody reads it
        return
