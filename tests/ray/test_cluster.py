"""Deployments on a Ray cluster of three nodes, all on this machine, while clients use them.

Clients here ask once and never again, so what they lose is what servers lose.
"""

import os
import signal
import time
from contextlib import suppress

import pytest
import ray
from model_files import IDENTITY
from placed import CLIENTS, bring, cluster_of, group, load_on, replicas, settled, status_that
from placed_load import Followed
from running_fleet import is_alive, until

from inferd.cli.main import main
from inferd.errors import InvalidConfig, InvalidRequest, Unavailable
from inferd.ray.connection import RayPlacement
from inferd.ray.head import NAMESPACE, controller_name
from inferd.ray.spec import DeploymentSpec
from inferd.route.place import PlaceState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster():
    with cluster_of({"num_cpus": 2}, {"num_cpus": 2, "resources": {"left": 4}}) as one:
        yield one


@pytest.fixture
def placement(cluster):
    """What is deployed is gone at the end."""
    with RayPlacement(cluster.address) as one:
        yield one
        with suppress(Unavailable):
            one.remove()


@pytest.fixture
def followed(cluster):
    with Followed(cluster.address) as one:
        yield one


def test_more_and_fewer_replicas_lose_no_request(placement, models, followed):
    bring(placement, group(models))
    with load_on(followed) as load:
        bring(placement, group(models, 3))
        until(lambda: len(followed.ready) == 3)
        bring(placement, group(models))
        until(lambda: len(followed.places) == 1)
    assert load.counts["lost"] == 0, load.faults


def test_replacing_all_replicas_loses_no_request(placement, models, followed):
    before = {one.name for one in replicas(bring(placement, group(models, 2)))}
    with load_on(followed) as load:
        after = {one.name for one in replicas(bring(placement, group(models, 2), replace=True))}
    assert before.isdisjoint(after)
    assert load.counts["lost"] == 0, load.faults


def test_an_actor_that_ray_kills_costs_no_request_and_is_replaced(placement, models, followed):
    [one, _] = replicas(bring(placement, group(models, 2)))
    [name] = [each for each in names_of_replicas() if each.endswith(f":{one.name.split('-')[1]}")]
    with load_on(followed) as load:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE))
        status_that(placement, lambda now: one.name not in {each.name for each in replicas(now)})
        settled(placement)
    assert load.counts["lost"] == 0, load.faults
    until(lambda: not is_alive(one.pid))


def names_of_replicas():
    listed = ray.util.list_named_actors(all_namespaces=True)
    return [one["name"] for one in listed if one["name"].count(":") == 4]


def test_a_killed_server_costs_what_it_had_under_way_and_is_replaced(placement, models, followed):
    [one, _] = replicas(bring(placement, group(models, 2)))
    with load_on(followed) as load:
        os.kill(one.pid, signal.SIGKILL)
        status_that(placement, lambda now: one.name not in {each.name for each in replicas(now)})
        settled(placement)
    assert load.counts["lost"] <= CLIENTS, load.faults


def test_a_controller_that_ends_takes_over_what_runs(placement, models, followed):
    before = {one.name: one.pid for one in replicas(bring(placement, group(models, 2)))}
    with load_on(followed) as load:
        controller = ray.get_actor(controller_name("inferd"), namespace=NAMESPACE)
        ray.kill(controller, no_restart=False)
        after = {one.name: one.pid for one in replicas(settled(placement))}
        status = bring(placement, group(models, 1))
    assert after == before
    assert {one.name for one in replicas(status)} < set(before)
    assert load.counts["lost"] == 0, load.faults


def test_groups_have_models_and_resources_of_their_own(placement, models, tmp_path, followed):
    other = tmp_path / "other"
    (other / "1").mkdir(parents=True)
    (other / "config.pbtxt").write_text(IDENTITY)
    status = bring(
        placement,
        group(models, 1, name="a"),
        group(models, 1, name="b", path=other, resources={"left": 1}),
    )
    assert [one.models for one in status.groups] == [("same",), ("other",)]
    until(lambda: len(followed.ready) == 2)
    assert {one.models for one in followed.ready} == {frozenset({"same"}), frozenset({"other"})}


def test_what_cannot_be_says_why_and_leaves_the_rest_alone(placement, models, capsys, cluster):
    bring(placement, group(models))
    broken = group(models, name="broken", path=models / "gone")
    large = group(models, name="large", gpus=1.0)
    placement.deploy(DeploymentSpec(groups=(group(models), broken, large)))
    status = status_that(
        placement, lambda now: all(one.reason for one in now.groups if one.name != "g")
    )
    fine, gone, waiting = status.groups
    assert fine.is_settled
    assert f"has no {models / 'gone'}" in gone.reason
    assert waiting.reason == "waits for 0.5 CPU, 1 GPU: no node has any GPU"
    status = status_that(placement, lambda now: now.groups[1].is_given_up)
    assert "given up after 5 attempts" in status.groups[1].reason
    with pytest.raises(InvalidRequest, match="there is no group 'what'"):
        placement.scale("what", 2)
    assert main(["deploy", "--status", "--ray", "auto"]) == 1
    assert "no node has any GPU" in capsys.readouterr().out
    with pytest.raises(InvalidConfig, match="is in a Ray cluster already"):
        RayPlacement(cluster.address)


def test_the_command_deploys_shows_and_ends(models, tmp_path, cluster, capsys):
    file = tmp_path / "models.toml"
    file.write_text(f"[groups.g]\nmodels = ['{models}/same']\nreplicas = 2\ncpus = 0.5\n")
    words = ["--ray", cluster.address]
    assert main(["deploy", str(file), *words]) == 0
    said = capsys.readouterr().out
    assert "g-1 placing" in said
    assert "g-2 ready on " in said
    assert main(["deploy", "--scale", "g=9", *words]) == 0
    assert main(["deploy", "--status", *words]) == 0
    assert "g: 2 of 2 ready, as wanted, models same" in capsys.readouterr().out
    assert main(["places", *words]) == 0
    assert capsys.readouterr().out.startswith("2 places\n")
    assert main(["deploy", "--down", *words]) == 0
    assert main(["places", *words]) == 1
    assert "nothing is deployed" in capsys.readouterr().err


def test_replicas_follow_the_load(placement, models, followed):
    rule = {"pending": 1.0, "up_after_s": 2.0, "down_after_s": 5.0}
    spec = group(models, 1, 3, path=models / "slow.py", rule=rule, cpus=0.25)
    bring(placement, spec)
    with load_on(followed, model="slow") as load:
        began = time.monotonic()
        status_that(
            placement, lambda now: len([x for x in replicas(now) if x.phase == "ready"]) == 3
        )
        took_s = time.monotonic() - began
    status_that(placement, lambda now: now.groups[0].desired == 1)
    settled(placement)
    assert load.counts["lost"] == 0, load.faults
    assert took_s < 30.0


def test_a_group_ends_when_nobody_asks_and_is_woken(placement, models, followed):
    rule = {"idle_s": 2.0, "up_after_s": 1.0, "down_after_s": 1.0}
    placement.deploy(DeploymentSpec(groups=(group(models, 0, 1, rule=rule),)))
    until(lambda: followed.ready)
    status_that(placement, lambda now: now.is_settled and not replicas(now))
    until(lambda: [one.state for one in followed.places] == [PlaceState.ASLEEP])
    [asleep] = followed.places
    assert asleep.models == {"same"}
    followed.wake(asleep.name)
    until(lambda: followed.ready)
