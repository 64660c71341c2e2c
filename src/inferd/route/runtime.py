"""HAProxy's runtime socket: the commands that change what it has, and that ask how it does."""

import asyncio
import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from inferd.errors import InferdError
from inferd.route.arrangement import ALL, Arrangement, SlotContent, SlotUse
from inferd.route.configuration import map_lines, port_of, servers_of, use_in

TIMEOUT_S = 10.0

# HAProxy has to hold a command in one of its buffers (BUFSIZE).
_PIECE_BYTES = 8000
# Answers to commands that changed something or nothing; others are refusals.
_QUIET = ("IP changed", "no need to change", "nothing changed")


class CommandFailed(InferdError):
    """HAProxy does not answer, or refused a command."""


class RuntimeSocket:
    """Asks at the runtime socket with that path; each command has a connection of its own."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def ask(self, command: str) -> str:
        """Return what HAProxy says to a command. Raises CommandFailed."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self._path)
                try:
                    writer.write(command.encode() + b"\n")
                    await writer.drain()
                    # HAProxy closes the connection when it has said all.
                    return (await reader.read()).decode(errors="replace").strip()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            msg = f"HAProxy does not answer: {error or type(error).__name__}"
            raise CommandFailed(msg) from error

    async def change(self, commands: Sequence[str]) -> None:
        """Have HAProxy do `commands`, one after the other. Raises CommandFailed."""
        for piece in _pieces(commands):
            # Commands on one line are done in order, for one connection.
            said = await self.ask(";".join(piece))
            wrong = [line for line in said.splitlines() if line and not line.startswith(_QUIET)]
            if wrong:
                raise CommandFailed(f"HAProxy refused a change: {wrong[0]}")

    async def replace_map(self, path: str, lines: Iterable[tuple[str, str]]) -> None:
        """Give the map of a file other contents, all at once. Raises CommandFailed."""
        said = await self.ask(f"prepare map {path}")
        # A new version of the map is filled aside, and takes over at once: no request sees half of
        # it.
        version = said.rpartition(":")[2].strip()
        if not version.isdecimal():
            raise _map_refused(said)
        # Lines up to an empty one are the command's payload.
        pieces = _pieces([f"{key} {value}\n" for key, value in lines])
        commands = [f"add map @{version} {path} <<\n{''.join(piece)}" for piece in pieces]
        for command in (*commands, f"commit map @{version} {path}"):
            if refused := await self.ask(command):
                raise _map_refused(refused)

    async def numbers(self) -> list[dict[str, str]]:
        """Return what HAProxy counts, one row for each frontend, backend and server."""
        text = await self.ask("show stat")
        # The head of HAProxy's CSV is a comment.
        return list(csv.DictReader(text.removeprefix("# ").splitlines()))


def _map_refused(said: str) -> CommandFailed:
    return CommandFailed(f"HAProxy refused to change its map: {said}")


def _pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts, as many at once as HAProxy takes."""
    piece: list[str] = []
    size = 0
    for one in texts:
        if piece and size + len(one) > _PIECE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += len(one) + 1
    if piece:
        yield piece


async def supply(
    socket: RuntimeSocket,
    map_path: str,
    before: Arrangement | None,
    after: Arrangement,
    group_count: int,
) -> None:
    """Have HAProxy change from one arrangement to another; None: nobody knows what it has.

    No request is sent to a place before it is known what it has: a place joins the groups of its
    models first, then the map leads there, and then it joins all places and leaves what it leaves.
    Raises CommandFailed; then it is not known what HAProxy has.
    """
    uses = [*_changed_uses(before, after, group_count)]
    joining = [one for one in uses if one.group != ALL and one.use is SlotUse.READY]
    others = [one for one in uses if one not in joining]
    others.sort(
        key=lambda one: one.use is not SlotUse.READY
    )  # nobody leaves before others are there
    await socket.change([*_readdressed(before, after, group_count), *_states(joining)])
    # Replacing the map takes three commands and a moment; most changes are about slots alone.
    if before is None or list(map_lines(before)) != list(map_lines(after)):
        await socket.replace_map(map_path, map_lines(after))
    await socket.change([*_states(others)])


class _Use(NamedTuple):
    group: str
    slot: int
    use: SlotUse


def _groups(count: int) -> Iterator[str]:
    yield ALL
    yield from map(str, range(1, count + 1))


def _states(uses: Iterable[_Use]) -> Iterator[str]:
    for group, slot, use in uses:
        for server in servers_of(group, slot):
            yield f"set server {server.name} state {use.value}"


def _readdressed(before: Arrangement | None, after: Arrangement, group_count: int) -> Iterator[str]:
    """Yield the commands for slots that have another place, or whose place is elsewhere.

    Nothing is sent there meanwhile: it is not known yet what the place has.
    """
    for slot, new in enumerate(after.slots):
        old = before.slots[slot] if before else SlotContent()
        if new.use is SlotUse.UNUSED or (before and _where(old) == _where(new)):
            continue
        if old.name != new.name:
            # The sequences of whoever had the slot before are not its own.
            yield f"clear table begun-sequences data.server_id eq {slot + 1}"
        for group in _groups(group_count):
            if old.use is not SlotUse.UNUSED or before is None:
                yield from _states([_Use(group, slot, SlotUse.UNUSED)])
            for server in servers_of(group, slot):
                port = port_of(server.kind, new)
                yield f"set server {server.name} addr {new.address} port {port}"
                if server.has_check_port:
                    # Its usual one would be the port of gRPC.
                    yield f"set server {server.name} check-port {new.http_port}"


def _where(content: SlotContent) -> tuple[str, int, int]:
    return content.address, content.http_port, content.grpc_port


def _changed_uses(
    before: Arrangement | None, after: Arrangement, group_count: int
) -> Iterator[_Use]:
    """Yield what slots are given, where that changes or their place does."""
    for group in _groups(group_count):
        becomes = after.members(group)
        was = before.members(group) if before else None
        for slot, new in enumerate(after.slots):
            use = use_in(new, becomes, slot)
            if before:
                old = before.slots[slot]
                moved = new.use is not SlotUse.UNUSED and _where(old) != _where(new)
                if use is (SlotUse.UNUSED if moved else use_in(old, was, slot)):
                    continue
            yield _Use(group, slot, use)
