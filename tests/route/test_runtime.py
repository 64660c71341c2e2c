"""A running HAProxy is supplied with other places, models and states, without a reload."""

import asyncio
import socket
import subprocess

import pytest

from inferd.route.arrangement import Arranger, KnownPlace, ModelKind
from inferd.route.configuration import Paths, RouteSettings, configuration, map_lines
from inferd.route.place import Place, PlaceState
from inferd.route.runtime import CommandFailed, RuntimeSocket, supply

GROUPS = 2
ONCE, SEQUENCE = ModelKind.ONCE, ModelKind.SEQUENCE


def known(name, port=1000, state=PlaceState.READY, **models):
    return KnownPlace(Place(name, "h", port, port + 1, None, state), "127.0.0.1", models)


@pytest.fixture
def haproxy(program, tmp_path):
    """A running HAProxy, empty: its runtime socket, the path of its map, and an Arranger."""
    paths = Paths(*(str(tmp_path / name) for name in ("s", "m.map", "own", "front")))
    arranger = Arranger(3, GROUPS)
    (tmp_path / "m.map").touch()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings = RouteSettings("127.0.0.1", threads=1, max_groups=GROUPS)
        binds = [f"fd@{listening.fileno()}"]
        text = configuration(binds, paths, settings, arranger.last, has_lua=False)
        (tmp_path / "haproxy.cfg").write_text(text)
        process = subprocess.Popen(
            [program.path, "-db", "-q", "-f", tmp_path / "haproxy.cfg"],
            pass_fds=[listening.fileno()],
            stderr=subprocess.DEVNULL,
        )
        runtime = RuntimeSocket(paths.runtime_socket)
        try:
            while not asyncio.run(answers(runtime)):
                assert process.poll() is None
            yield runtime, paths.map, arranger
        finally:
            process.kill()
            process.wait()


async def answers(runtime):
    try:
        return await runtime.ask("show info")
    except CommandFailed:
        return ""


MAINTENANCE, DRAIN = 0x23, 0x08
"""Bits of srv_admin_state: srv_admin in HAProxy's management guide."""


def state_of(bits):
    if bits & MAINTENANCE:
        return "maint"
    return "drain" if bits & DRAIN else "ready"


async def states(runtime, backend):
    """Return (address, port, state) of each slot of a backend, whose servers have the same."""
    rows = (await runtime.ask(f"show servers state {backend}")).splitlines()
    names = rows[1].removeprefix("# ").split()
    found = [dict(zip(names, row.split(), strict=False)) for row in rows[2:] if row]
    servers = {
        row["srv_name"]: (
            row["srv_addr"],
            int(row["srv_port"]),
            state_of(int(row["srv_admin_state"])),
        )
        for row in found
    }
    usual = {name: one for name, one in servers.items() if "-" not in name}
    if not backend.startswith(("sequences", "grpc-sequences")):
        assert servers == usual | {f"{name}-unchecked": one for name, one in usual.items()}
    return list(usual.values())


async def map_of(runtime, path):
    lines = (await runtime.ask(f"show map {path}")).splitlines()
    return dict(line.split()[1:] for line in lines)


def supplied(haproxy, *rounds):
    """Supply HAProxy with each round of places; return its runtime socket's states at the end."""
    runtime, path, arranger = haproxy

    async def run():
        before = arranger.last
        for places in rounds:
            after = arranger.arrange(places)
            await supply(runtime, path, before, after, GROUPS)
            before = after
        expected = dict(map_lines(arranger.last))
        assert await map_of(runtime, path) == expected
        return {
            name: await states(runtime, name)
            for name in ("rest-all", "grpc-all", "sequences-all", "rest-1", "grpc-sequences-1")
        }

    return asyncio.run(run())


FREE = ("127.0.0.1", 1, "maint")


def test_places_get_their_slots_in_all_backends(haproxy):
    found = supplied(haproxy, [known("a", m=ONCE), known("b", 2000, m=ONCE)])
    assert found["rest-all"][:2] == [("127.0.0.1", 1000, "ready"), ("127.0.0.1", 2000, "ready")]
    assert found["grpc-all"][:2] == [("127.0.0.1", 1001, "ready"), ("127.0.0.1", 2001, "ready")]
    assert found["sequences-all"][0] == ("127.0.0.1", 1000, "ready")
    assert found["rest-all"][2] == FREE
    assert found["rest-1"][0] == ("127.0.0.1", 1000, "maint")


def test_a_group_is_opened_for_the_places_of_its_models(haproxy):
    found = supplied(
        haproxy,
        [known("a", m=ONCE), known("b", 2000, m=ONCE)],
        [known("a", m=ONCE, n=SEQUENCE), known("b", 2000, m=ONCE)],
    )
    assert [state for *_, state in found["rest-1"]] == ["ready", "maint", "maint"]
    assert [state for *_, state in found["grpc-sequences-1"]] == ["ready", "maint", "maint"]


def test_a_place_that_drains_keeps_its_slot_and_one_that_goes_leaves_it(haproxy):
    found = supplied(
        haproxy,
        [known("a"), known("b", 2000)],
        [known("a", state=PlaceState.DRAINING)],
    )
    assert found["rest-all"] == [
        ("127.0.0.1", 1000, "drain"),
        ("127.0.0.1", 2000, "maint"),
        FREE,
    ]


def test_a_place_that_has_moved_is_sent_to_at_its_new_address(haproxy):
    found = supplied(haproxy, [known("a")], [known("a", 3000)])
    assert found["rest-all"][0] == ("127.0.0.1", 3000, "ready")
    assert found["grpc-all"][0] == ("127.0.0.1", 3001, "ready")


def test_models_by_the_thousand_fit_into_the_map(haproxy):
    models = {f"a_model_with_a_long_name_{number}": ONCE for number in range(2000)}
    supplied(haproxy, [known("a", **models)], [known("a", x=ONCE)], [known("a", **models)])


def test_what_haproxy_has_need_not_be_known(haproxy):
    runtime, path, arranger = haproxy

    async def run():
        await supply(runtime, path, None, arranger.arrange([known("a", m=ONCE)]), GROUPS)
        await supply(runtime, path, None, arranger.arrange([known("a", 2000)]), GROUPS)
        return await states(runtime, "grpc-all"), await map_of(runtime, path)

    found, lines = asyncio.run(run())
    assert found[0] == ("127.0.0.1", 2001, "ready")
    assert lines == {}


def test_a_slot_with_another_place_has_none_of_the_old_sequences(haproxy):
    runtime, path, arranger = haproxy

    async def run():
        before = arranger.arrange([known("a")])
        await supply(runtime, path, None, before, GROUPS)
        key = "00112233445566778899aabbccddeeff00112233"
        assert await runtime.ask(f"set table begun-sequences key {key} data.server_id 1") == ""
        assert "server_id=1" in await runtime.ask("show table begun-sequences")
        gone = arranger.arrange([])
        await supply(runtime, path, before, gone, GROUPS)
        full = arranger.arrange([known("b", 2000), known("c", 3000), known("d", 4000)])
        await supply(runtime, path, gone, full, GROUPS)
        return await runtime.ask("show table begun-sequences")

    assert "server_id=1" not in asyncio.run(run())


def test_what_haproxy_refuses_is_an_error(haproxy):
    runtime, path, _ = haproxy
    with pytest.raises(CommandFailed, match="HAProxy refused a change: No such"):
        asyncio.run(runtime.change(["set server none/p1 state maint"]))
    with pytest.raises(CommandFailed, match="HAProxy refused to change its map"):
        asyncio.run(runtime.replace_map(path + "x", []))


def test_a_haproxy_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(CommandFailed, match="HAProxy does not answer"):
        asyncio.run(RuntimeSocket(str(tmp_path / "none")).ask("show info"))


def test_what_it_counts_is_read(haproxy):
    runtime, _, _ = haproxy
    rows = asyncio.run(runtime.numbers())
    assert {"pxname": "rest-all", "svname": "p1"}.items() <= next(
        row for row in rows if row["svname"] == "p1" and row["pxname"] == "rest-all"
    ).items()
