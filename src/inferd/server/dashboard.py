"""The dashboard of a server, made of its options."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.config.options.ui_hosts import read_ui_hosts
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.ui.dashboard import Dashboard
    from inferd.ui.tokens import Tokens


def dashboard(
    config: ServerConfig, engine: Engine, tokens: "Tokens | None", say_next: Callable[[], None]
) -> "Dashboard":
    """Return the dashboard of `engine`: see Dashboard."""
    from inferd.ui.dashboard import Dashboard
    from inferd.ui.glance import Glance
    from inferd.ui.hosts import Hosts
    from inferd.ui.streams import Hub

    hosts = Hosts(read_ui_hosts(config.ui_hosts))
    return Dashboard(engine, Hub(Glance(engine, config.id)), hosts, tokens, say_next)


def read_certificate(shown: "Dashboard", path: str) -> None:
    """Have the dashboard know the names in the certificate in the file `path`.

    Raises InvalidConfig when it cannot be read.
    """
    from inferd.ui.certificate import names_in

    try:
        text = Path(path).read_text("latin-1")
    except OSError as error:
        msg = f"--http-server-cert: cannot read {path}: {error.strerror}"
        raise InvalidConfig(msg) from error
    shown.hosts.certified = names_in(text)
