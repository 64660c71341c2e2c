"""The dashboard of a server, made of its options."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.config.options.browser import read_ui_hosts
from inferd.config.server import ServerConfig
from inferd.core.processes import Processes
from inferd.engine.engine import Engine
from inferd.errors import InvalidConfig
from inferd.observe.devices import Gpus

if TYPE_CHECKING:
    from inferd.ui.dashboard import Dashboard
    from inferd.ui.figures.board import FigureBoard
    from inferd.ui.tokens import Tokens


def dashboard(
    config: ServerConfig,
    engine: Engine,
    processes: Processes,
    connections: Callable[[], int],
    tokens: "Tokens | None",
    say_next: Callable[[], None],
) -> "tuple[Dashboard, FigureBoard]":
    """Return the dashboard of `engine`, in one of the `processes` of a server: see Dashboard.

    With it comes the board that has what it shows.
    """
    from inferd.ui.dashboard import Dashboard
    from inferd.ui.figures.board import FigureBoard
    from inferd.ui.figures.feeds import Figures
    from inferd.ui.figures.sampler import Meters, Sampler
    from inferd.ui.hosts import Hosts
    from inferd.ui.streams import Hub

    meters = Meters(connections, Gpus() if config.allow_gpu_metrics else None)
    sampler = Sampler(engine, meters, has_others=processes.count > 1)
    board = FigureBoard(engine, sampler, config.id, processes)
    hosts = Hosts(read_ui_hosts(config.ui_hosts))
    return Dashboard(engine, Hub(Figures(board)), hosts, tokens, say_next), board


def read_certificate(shown: "Dashboard", path: str) -> None:
    """Have the dashboard know the names in the certificate in the file `path`.

    Raises InvalidConfig when it cannot be read.
    """
    from inferd.ui.certificate import names_in

    try:
        # Whatever the file has outside of the certificate's block.
        text = Path(path).read_text("latin-1")
    except OSError as error:
        raise InvalidConfig(f"--http-server-cert: cannot read {path}: {error.strerror}") from error
    shown.hosts.certified = names_in(text)
