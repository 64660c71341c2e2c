"""The process of inferd route: follows the source, surveys the places, supplies HAProxy."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import inferd
from inferd import system
from inferd.config.options.log import LogSettings
from inferd.errors import InferdError, InvalidConfig
from inferd.observe.log import Log
from inferd.route.arrangement import Arrangement, Arranger, SlotUse
from inferd.route.asking import Channels
from inferd.route.configuration import RouteSettings
from inferd.route.control import ControlCalls, GrpcControl, RestControl, Sleepers
from inferd.route.haproxy import Haproxy, Program, check_configuration, find_program
from inferd.route.metrics import RouteCounts, RouteMetrics
from inferd.route.own_server import OwnServer
from inferd.route.place import Place, PlaceState, Source
from inferd.route.runtime import CommandFailed
from inferd.route.survey import Survey
from inferd.route.tls import LOOK_S as TLS_LOOK_S
from inferd.route.tls import FrontTls
from inferd.server.address import host_and_port
from inferd.server.systemd.notify import READY, STOPPING, Notifier

LOGGER = logging.getLogger("inferd")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
"""Between two tries of a source that fails."""

_AGAIN_S = 1.0
_METRICS_BODY_BYTES = 1000
_SERVED = {
    SlotUse.READY: "place %s is sent requests",
    SlotUse.DRAIN: "place %s drains",
    SlotUse.UNUSED: "place %s is sent nothing any more",
}
# Also while HAProxy is replaced, clients wait here.
_BACKLOG = 4096


def run(settings: RouteSettings, source: Source) -> int:
    """Route until SIGTERM or SIGINT. Return the exit code, 1 if requests were cut at the end.

    Raises InvalidConfig if it cannot start.
    """
    if not system.SEVERAL:
        raise InvalidConfig("inferd route needs Linux, where HAProxy ends with it")
    Log(LogSettings()).open()
    program = find_program(settings.haproxy)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="inferd-route-"))
        # Only when all is over: HAProxy reads its files again if it is started again.
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sockets = listen(settings)
        for one in sockets:
            stack.enter_context(one)
        with asyncio.Runner() as runner:
            return runner.run(_Route(settings, source, program, sockets, folder).serve())


def show(settings: RouteSettings, *, check: bool) -> int:
    """Print the configuration; `check`: say whether HAProxy accepts it. Raises InvalidConfig."""
    program = find_program(settings.haproxy)
    with tempfile.TemporaryDirectory(prefix="inferd-route-") as folder:
        words = FrontTls(settings, Path(folder)).words
        haproxy = Haproxy(program, [], words, Path(folder), settings)
        empty = Arranger(settings.max_places, settings.max_groups).last
        # A port of 0 cannot be in a configuration that is only printed.
        ports = [port or 8000 + number for number, port in enumerate(_ports(settings))]
        text = haproxy.text(empty, [host_and_port(settings.address, port) for port in ports])
        if not check:
            sys.stdout.write(text)
            return 0
        path = Path(folder) / "haproxy.cfg"
        path.write_text(text)
        Path(haproxy.paths.map).touch()
        if wrong := check_configuration(program, path):
            sys.stderr.write(wrong)
            return 1
    sys.stdout.write(f"HAProxy at {program.path} accepts the configuration\n")
    return 0


def listen(settings: RouteSettings) -> list[socket.socket]:
    """Return the sockets that HAProxy will listen on. Raises InvalidConfig if one cannot be had."""
    found: list[socket.socket] = []
    try:
        for flag, port in zip(("--http-port", "--grpc-port"), _ports(settings), strict=False):
            family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
            one = socket.socket(family, socket.SOCK_STREAM)
            found.append(one)
            # Connections of a route before may be in TIME_WAIT.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((settings.address, port))
                one.listen(_BACKLOG)
            except OSError as error:
                where = host_and_port(settings.address, port)
                raise InvalidConfig(
                    f"cannot listen on {where}: {error.strerror}; choose another place with "
                    f"{flag} (0 lets the system choose) or --address"
                ) from error
            one.set_inheritable(True)
    except BaseException:
        for one in found:
            one.close()
        raise
    return found


def _ports(settings: RouteSettings) -> list[int]:
    # Two times 0 means two ports that the system chooses.
    if settings.http_port == settings.grpc_port != 0:
        return [settings.http_port]
    return [settings.http_port, settings.grpc_port]


async def follow(
    source: Source,
    counts: RouteCounts,
    take: Callable[[tuple[Place, ...]], None],
    first_pause_s: float = FIRST_PAUSE_S,
) -> NoReturn:
    """Give all places to `take` whenever any has changed.

    When the source fails, or has a mistake in it, the last places stay, and it is tried again.
    """
    pause_s, said = first_pause_s, ""
    while True:
        try:
            async for places in source.follow():
                if said:
                    LOGGER.info("%s tells its places again", source.name)
                # It works: the next failure begins with short pauses.
                pause_s, said = first_pause_s, ""
                counts.is_source_failing = False
                # A place that sleeps is no server.
                counts.place_count = sum(one.state is not PlaceState.ASLEEP for one in places)
                take(places)
        # Whatever a source raises must not end the route.
        except Exception as error:
            counts.is_source_failing = True
            counts.source_failure_count += 1
            is_expected = isinstance(error, InferdError)
            text = error.message if isinstance(error, InferdError) else repr(error)
            # Once, not with each try.
            if text != said:
                said = text
                trace = None if is_expected else error
                LOGGER.error("the places stay as they were: %s", text, exc_info=trace)  # noqa: TRY400  see trace
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class _Route:
    """The one route of this process."""

    def __init__(
        self,
        settings: RouteSettings,
        source: Source,
        program: Program,
        sockets: list[socket.socket],
        folder: Path,
    ) -> None:
        self._settings = settings
        self._source = source
        self._tls = FrontTls(settings, folder)
        self._haproxy = Haproxy(program, sockets, self._tls.words, folder, settings)
        self._ports = [one.getsockname()[1] for one in sockets]
        self._arranger = Arranger(settings.max_places, settings.max_groups)
        self._counts = RouteCounts()
        self._changed = asyncio.Event()
        self._survey = Survey(self._changed.set, _headers(settings), self._silenced)
        self._silent: list[int] = []  # slots whose places do not answer at all
        self._channels = Channels()
        self._sleepers = Sleepers(source.wake)
        control = ControlCalls(self._survey.places, self._refresh, self._sleepers.wake)
        grpc_control = GrpcControl(control, self._channels, self._haproxy.paths.front_socket)
        self._own = OwnServer(RestControl(control), grpc_control.methods())
        self._metrics = OwnServer(
            RouteMetrics(self._counts, self._haproxy.runtime), {}, _METRICS_BODY_BYTES
        )
        self._stop = asyncio.Event()
        self._notifier = Notifier(os.environ)
        self._served: dict[str, SlotUse] = {}
        self._said: tuple[tuple[str, ...], ...] = ((), (), ())

    async def serve(self) -> int:
        """Run from start to end, and return the exit code. Raises InvalidConfig."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        self._notifier.keep(loop)
        await self._own.open_unix(self._haproxy.paths.control_socket)
        metrics_port = await self._open_metrics()
        # With empty slots, before any place is known: a mistake in its configuration shows at once.
        await self._haproxy.start(self._arranger.last)
        self._say_where(metrics_port)
        tasks = [
            asyncio.create_task(one)
            for one in (
                follow(self._source, self._counts, self._take),
                self._keep_supplied(),
                self._haproxy.keep(),
                self._keep_renewing(),
            )
        ]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
            for one in tasks:
                if one.done():
                    # A task that has ended has failed: none ends by itself.
                    one.result()
            is_done = await self._haproxy.stop(self._settings.exit_timeout_secs)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Also after an error, so that no HAProxy stays behind.
            await self._haproxy.stop(0.0)
            self._survey.stop()
            await self._channels.close()
            self._own.close()
            self._metrics.close()
        LOGGER.info("ended")
        if not is_done:
            LOGGER.warning("requests were cut: --exit-timeout-secs had passed")
        return 0 if is_done else 1

    async def _open_metrics(self) -> int:
        address, port = self._settings.address, self._settings.metrics_port
        try:
            return await self._metrics.open(address, port)
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {host_and_port(address, port)} for metrics: {error.strerror}; "
                f"choose another place with --metrics-port (0 lets the system choose)"
            ) from error

    def _say_where(self, metrics_port: int) -> None:
        scheme = "https" if self._tls.is_on else "http"
        address = self._settings.address
        LOGGER.info(
            "inferd %s routes at %s://%s and %s, to the places of %s",
            inferd.__version__,
            scheme,
            host_and_port(address, self._ports[0]),
            host_and_port(address, self._ports[-1]),
            self._source.name,
        )
        LOGGER.info("metrics at http://%s/metrics", host_and_port(address, metrics_port))

    def _take(self, places: tuple[Place, ...]) -> None:
        self._survey.follow(self._sleepers.without(places))

    async def _refresh(self) -> None:
        """Look at all places, and wait until HAProxy has what they have."""
        await self._survey.refresh()
        try:
            await self._supply()
        except (CommandFailed, OSError):
            self._changed.set()  # once more, and with a line in the log

    async def _keep_supplied(self) -> None:
        while True:
            await self._changed.wait()
            # Before supplying: what changes meanwhile counts again.
            self._changed.clear()
            try:
                await self._supply()
            except (CommandFailed, OSError) as error:  # OSError: no room for the files
                self._counts.supply_failure_count += 1
                LOGGER.error("HAProxy is not supplied: %s", error)  # noqa: TRY400  it says all
                await asyncio.sleep(_AGAIN_S)
                self._changed.set()

    async def _keep_renewing(self) -> None:
        """Have HAProxy use new certificates."""
        while self._tls.is_on:
            await asyncio.sleep(TLS_LOOK_S)
            try:
                if await self._tls.renew(self._haproxy.runtime):
                    LOGGER.info("the TLS files have changed, and count from now on")
            except InferdError as error:
                LOGGER.error("the TLS files stay as they were: %s", error.message)  # noqa: TRY400  it says all
        # Never returns: a task that ended would end the route.
        await asyncio.Event().wait()

    async def _supply(self) -> None:
        arrangement = self._arranger.arrange(self._survey.known(), self._sleepers.models)
        self._counts.arrangement = arrangement
        self._counts.restart_count = self._haproxy.restart_count
        self._warn(arrangement)
        silent, self._silent = self._silent, []
        # Before cutting: clients that try again must not be sent there again.
        await self._haproxy.supply(arrangement)
        for slot in silent:
            await self._haproxy.cut(slot)
        self._say_served(arrangement)
        if arrangement.models or arrangement.asleep:
            # systemd hears that the service is ready once requests can be answered.
            self._notifier.note(READY)

    def _silenced(self, name: str) -> None:
        slots = enumerate(self._arranger.last.slots)
        self._silent += [slot for slot, content in slots if content.name == name]

    def _say_served(self, arrangement: Arrangement) -> None:
        """Log which places are sent requests now and were not before, and the other way round."""
        served: dict[str, SlotUse] = {one.name: one.use for one in arrangement.slots if one.name}
        for name in self._served.keys() | served.keys():
            use = served.get(name, SlotUse.UNUSED)
            if use is not self._served.get(name, SlotUse.UNUSED):
                LOGGER.info(_SERVED[use], name)
        self._served = served

    def _warn(self, arrangement: Arrangement) -> None:
        """Log what is wrong with an arrangement, unless it was before."""
        most = self._settings
        wrong = (
            (
                logging.ERROR,
                f"there are more places than --max-places {most.max_places}: nothing is sent to %s",
                arrangement.left_out,
            ),
            (
                logging.ERROR,
                f"the places differ in more ways than --max-groups {most.max_groups}: "
                "requests for %s go to any",
                arrangement.lost_models,
            ),
            (
                logging.WARNING,
                "the places differ in their newest versions, so requests that name none are "
                "answered by either: %s",
                arrangement.mixed_models,
            ),
        )
        for (level, text, names), before in zip(wrong, self._said, strict=True):
            if names and names != before:
                LOGGER.log(level, text, ", ".join(names))
        self._said = tuple(names for _, _, names in wrong)

    def _end(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            LOGGER.warning("%s again: ending at once", number.name)
            # HAProxy ends by itself: see _LAUNCH.
            os._exit(128 + number)
        LOGGER.info("%s: finishing what is under way", number.name)
        self._notifier.note(STOPPING)
        self._stop.set()


def _headers(settings: RouteSettings) -> dict[str, str]:
    """Return the headers of our own requests: the API key, if places need one."""
    if settings.key_file is None:
        return {}
    try:
        key = Path(settings.key_file).read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"--key-file: {error}") from error
    return {"Authorization": f"Bearer {key}"}
