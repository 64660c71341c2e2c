"""What places have is found out, and found out again when it changes."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest

from inferd.route.arrangement import ModelKind
from inferd.route.place import Place
from inferd.route.survey import Survey, kind_of

REPEATABLE, ONCE, SEQUENCE = ModelKind


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"backend": "onnxruntime"}, REPEATABLE),
        ({"backend": "onnxruntime", "sequence_batching": {}}, SEQUENCE),
        ({"model_transaction_policy": {"decoupled": True}}, ONCE),
        ({"model_transaction_policy": {"decoupled": False}}, REPEATABLE),
        ({"backend": "python"}, ONCE),
        ({"backend": "function"}, ONCE),
        (
            {"backend": "python", "parameters": {"inferd_repeatable": {"string_value": "true"}}},
            REPEATABLE,
        ),
        ({"parameters": {"inferd_repeatable": {"string_value": "false"}}}, ONCE),
        (
            {
                "sequence_batching": {},
                "parameters": {"inferd_repeatable": {"string_value": "true"}},
            },
            SEQUENCE,
        ),
    ],
)
def test_what_may_be_done_with_requests_is_in_the_configuration(config, kind):
    assert kind_of(config) is kind


def answers(*names, ready=True, **configs):
    """Return the answers of a place with models of these names, and their configurations."""
    rows = [{"name": name, "version": "1", "state": "READY"} for name in (*names, *configs)]
    paths = {
        f"/v2/models/{name}/config": (200, json.dumps(config).encode())
        for name, config in ({key: {} for key in names} | configs).items()
    }
    health = (200, b"{}") if ready else (503, b'{"error":"loading"}')
    index = (200, json.dumps(rows).encode())
    return {"/v2/health/ready": health, "/v2/repository/index": index} | paths


@asynccontextmanager
async def surveyed(server, **more):
    """Yield a survey of one place, after its first change, and what waits for the next."""
    changed = asyncio.Event()

    async def change():
        async with asyncio.timeout(20):
            await changed.wait()
            changed.clear()
        return survey.known()

    survey = Survey(changed.set, {"Authorization": "Bearer k"})
    survey.follow((Place("a", "127.0.0.1", server.port, 1, **more),))
    await change()  # there is a place
    try:
        yield survey, change
    finally:
        survey.stop()


def test_a_place_is_known_with_its_models_when_it_is_ready(site):
    async def test():
        async with site(answers("m", ready=False)) as server, surveyed(server) as (survey, change):
            assert survey.known() == []
            server.answers.update(answers("m", s={"sequence_batching": {}}))
            return await change(), server.requests

    [found], requests = asyncio.run(test())
    assert found.address == "127.0.0.1"
    assert found.models == {"m": REPEATABLE, "s": SEQUENCE}
    assert "Authorization: Bearer k" in requests[0][0]


def test_only_the_models_that_a_place_is_meant_to_have_count(site):
    async def test():
        models = frozenset({"m", "x"})
        async with (
            site(answers("m", "n")) as server,
            surveyed(server, models=models) as (_, change),
        ):
            return await change()

    [found] = asyncio.run(test())
    assert found.models == {"m": REPEATABLE}


def test_the_versions_of_models_that_count_are_known(site):
    rows = [("m", "1"), ("m", "2"), ("n", "1"), ("x", "3")]
    index = [{"name": name, "version": version, "state": "READY"} for name, version in rows]
    places = answers("m", "n", "x")
    places["/v2/repository/index"] = (200, json.dumps(index).encode())

    async def test():
        models = frozenset({"m", "n"})
        async with site(places) as server, surveyed(server, models=models) as (_, change):
            return await change()

    [found] = asyncio.run(test())
    assert found.versions == {"m": {"1", "2"}, "n": {"1"}}


def test_an_ensemble_needs_the_care_of_its_steps(site):
    ensemble = {"ensemble_scheduling": {"step": [{"model_name": "m"}, {"model_name": "p"}]}}

    async def test():
        places = answers("m", p={"backend": "python"}, e=ensemble)
        async with site(places) as server, surveyed(server) as (_, change):
            return await change()

    [found] = asyncio.run(test())
    assert found.models == {"m": REPEATABLE, "p": ONCE, "e": ONCE}


def test_a_refresh_sees_what_a_load_has_changed(site):
    async def test():
        async with site(answers("m")) as server, surveyed(server) as (survey, change):
            await change()
            server.answers.update(answers(m={"sequence_batching": {}}, n={}))
            await survey.refresh()
            return survey.known()

    [found] = asyncio.run(test())
    assert found.models == {"m": SEQUENCE, "n": REPEATABLE}


def test_a_place_that_refuses_connections_is_unknown_until_it_is_seen_again(site):
    async def test():
        async with site(answers("m")) as server, surveyed(server) as (survey, change):
            await change()
            await server.__aexit__()
            await survey.refresh()
            return survey.known()

    assert asyncio.run(test()) == []


def test_a_place_that_is_not_ready_any_more_keeps_what_it_has(site):
    async def test():
        async with site(answers("m")) as server, surveyed(server) as (survey, change):
            await change()
            server.answers.update(answers("m", ready=False))
            await survey.refresh()
            return survey.known()

    [found] = asyncio.run(test())
    assert found.models == {"m": REPEATABLE}


@pytest.mark.parametrize(
    "odd", [(200, b"{"), (200, b'[{"nam":1}]'), (401, b"{}"), b"nonsense\r\n\r\n"]
)
def test_a_place_with_odd_answers_is_not_known(site, odd, caplog):
    async def test():
        async with (
            site(answers("m") | {"/v2/repository/index": odd}) as server,
            surveyed(server) as (survey, _),
        ):
            await survey.refresh()
            return survey.known()

    assert asyncio.run(test()) == []
    assert "place a: " in caplog.text


@pytest.mark.parametrize(
    "odd",
    [
        b"[]",
        b"null",
        b'{"parameters": []}',
        b'{"parameters": {"inferd_repeatable": {"string_value": 1}}}',
        b'{"ensemble_scheduling": {"step": [{}]}}',
        b'{"ensemble_scheduling": {"step": 1}}',
        b"[" * 100_000,
    ],
)
def test_a_place_with_an_odd_configuration_is_not_known_until_it_is_mended(site, odd, caplog):
    async def test():
        asked = answers("m")
        async with (
            site(asked | {"/v2/models/m/config": (200, odd)}) as server,
            surveyed(server) as (survey, change),
        ):
            await survey.refresh()
            assert survey.known() == []
            server.answers.update(asked)
            assert [set(one.models) for one in await change()] == [{"m"}]

    asyncio.run(test())
    assert "place a: the configuration of 'm' cannot be read" in caplog.text


def test_models_whose_names_cannot_be_here_are_left_out(site):
    async def test():
        async with (
            site(answers("m", "org/m", "m\nn")) as server,
            surveyed(server) as (survey, _),
        ):
            await survey.refresh()
            return survey.known()

    assert [set(one.models) for one in asyncio.run(test())] == [{"m"}]


def test_a_place_that_has_moved_is_looked_at_anew(site):
    async def test():
        async with (
            site(answers("m")) as server,
            site(answers("n")) as other,
            surveyed(server) as (survey, change),
        ):
            await change()
            survey.follow((Place("a", "127.0.0.1", other.port, 1),))
            assert survey.known() == []
            await survey.refresh()
            return survey.known()

    [found] = asyncio.run(test())
    assert found.models == {"n": REPEATABLE}


def test_a_place_that_takes_no_connections_is_told_to_be_silent(site, caplog):
    silent = []

    async def test():
        changed = asyncio.Event()
        survey = Survey(changed.set, {}, silent.append)
        async with site(answers("m")) as server:
            survey.follow((Place("a", "127.0.0.1", server.port, 1),))
            await survey.refresh()
            assert [one.place.name for one in survey.known()] == ["a"]
            port = server.port
        # What is full has the system drop whatever else comes, as if the machine were gone.
        with socket.socket() as full, socket.socket() as first:
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind(("127.0.0.1", port))
            full.listen(0)
            first.connect(("127.0.0.1", port))
            async with asyncio.timeout(30):
                while not silent:
                    changed.clear()
                    await changed.wait()
        survey.stop()
        return survey.known()

    assert asyncio.run(test()) == []
    assert silent == ["a"]
    assert "place a: takes no connections" in caplog.text


def test_what_was_found_at_an_old_address_does_not_count_for_a_new_one(site):
    """The place moves while it is being looked at."""

    async def test():
        survey = Survey(lambda: None, {})
        async with site(answers("m")) as old, site(answers("n")) as new:
            old.arrived, old.release = asyncio.Event(), asyncio.Event()
            survey.follow((Place("a", "127.0.0.1", old.port, 1),))
            await old.arrived.wait()
            survey.follow((Place("a", "127.0.0.1", new.port, 1),))
            old.release.set()
            async with asyncio.timeout(30):
                while not survey.known():  # noqa: ASYNC110  nobody tells when
                    await asyncio.sleep(0)
            survey.stop()
            return survey.known()

    [found] = asyncio.run(test())
    assert found.models == {"n": REPEATABLE}
