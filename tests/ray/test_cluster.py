"""Deployments on a Ray cluster of three nodes, all on this machine, while clients use them.

Clients here ask once and never again, so what they lose is what servers lose.
"""

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
import ray
from placed_load import Followed, Load
from ray.cluster_utils import Cluster
from running_fleet import is_alive, until

from inferd.cli.main import main
from inferd.errors import InvalidRequest, Unavailable
from inferd.ray.actors import NAMESPACE, controller_name
from inferd.ray.connection import RayPlacement
from inferd.ray.spec import DeploymentSpec, GroupSpec, ScalingRule

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MODEL = 'backend: "identity" max_batch_size: 0 '
MODEL += 'input { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '
MODEL += 'output { name: "x" data_type: TYPE_INT32 dims: [ -1 ] } '
SLOW = """
import time
import inferd, numpy as np
from numpy.typing import NDArray

@inferd.model
def slow(x: NDArray[np.int32]) -> NDArray[np.int32]:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        time.sleep(0)  # a model that waits for something else
    return x
"""
MEMORY = 80_000_000  # Ray's least for its object store, which nobody uses
PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
WAIT_S = 60.0
CLIENTS = 8


@contextmanager
def cluster_of(*nodes, head=None):
    """Yield a cluster whose nodes have such resources, beside a head that has none."""
    before = os.environ.get(PATIENCE)
    os.environ[PATIENCE] = "7200"
    usual = {"object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **usual, **(head or {})})
    try:
        cluster.extra = [cluster.add_node(object_store_memory=MEMORY, **each) for each in nodes]
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.pop(PATIENCE)
        if before is not None:
            os.environ[PATIENCE] = before


@pytest.fixture(scope="module")
def cluster():
    with cluster_of({"num_cpus": 2}, {"num_cpus": 2, "resources": {"left": 4}}) as one:
        ray.init(address=one.address, log_to_driver=False, logging_level="ERROR")
        yield one
        ray.shutdown()


@pytest.fixture
def placement(cluster):
    """What is deployed is gone at the end."""
    with RayPlacement(cluster.address) as one:
        yield one
        with suppress(Unavailable):
            one.remove()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "same/1").mkdir(parents=True)
    (folder / "same/config.pbtxt").write_text(MODEL)
    (folder / "slow.py").write_text(SLOW)
    return folder


@pytest.fixture
def followed(cluster):
    one = Followed(cluster.address)
    yield one
    one.close()


def group(models, least=1, most=None, name="g", **more):
    rule = ScalingRule(least=least, most=least if most is None else most, **more.pop("rule", {}))
    cpus = more.pop("cpus", 0.5)
    path = str(more.pop("path", models / "same"))
    return GroupSpec(name=name, models=(path,), cpus=cpus, scaling=rule, **more)


def bring(placement, *groups, replace=False):
    """Deploy, wait until it is settled, and return the status."""
    placement.deploy(DeploymentSpec(groups=groups), replace=replace)
    return settled(placement)


def settled(placement):
    *_, status = placement.follow(WAIT_S)
    assert status.is_settled, status
    return status


def status_that(placement, holds):
    """Wait until the status is such."""
    until_s = time.monotonic() + WAIT_S
    for status in placement.watch():
        if holds(status):
            return status
        assert time.monotonic() < until_s, status
    return None


def replicas(status):
    return [one for each in status.groups for one in each.replicas]


@contextmanager
def load_on(followed, **more):
    until(lambda: followed.ready)
    with Load(followed, clients=CLIENTS, **more) as load:
        until(lambda: load.counts["answered"] > 100)
        yield load
        enough = load.counts["answered"] + 200
        until(lambda: load.counts["answered"] > enough)


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
        after = {one.name: one.pid for one in replicas(settled_again(placement))}
        status = bring(placement, group(models, 1))
    assert after == before
    assert {one.name for one in replicas(status)} < set(before)
    assert load.counts["lost"] == 0, load.faults


def settled_again(placement):
    """Wait for the next controller, and until it has heard of all."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        try:
            return settled(placement)
        except Unavailable:
            continue
    return pytest.fail("there is no controller")


def test_groups_have_models_and_resources_of_their_own(placement, models, tmp_path, followed):
    other = tmp_path / "other"
    (other / "1").mkdir(parents=True)
    (other / "config.pbtxt").write_text(MODEL)
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
    assert main(["deploy", "--status", "--ray", cluster.address]) == 1
    assert "no node has any GPU" in capsys.readouterr().out


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
    until(lambda: not followed.places)
    placement.wake("g")
    until(lambda: followed.ready)


def test_a_node_that_is_killed_loses_what_it_had_under_way(models):
    with (
        cluster_of({"num_cpus": 1}, {"num_cpus": 1}, {"num_cpus": 2}) as cluster,
        RayPlacement(cluster.address) as placement,
    ):
        status = bring(placement, group(models, 3, cpus=1.0))
        followed = Followed(cluster.address)
        ids = {one["RayletSocketName"]: one["NodeID"] for one in ray.nodes()}
        on = {
            node: [one for one in replicas(status) if one.node.endswith(f"({node_id[:6]})")]
            for node in cluster.extra
            if (node_id := ids[node.raylet_socket_name])
        }
        victim, killed = next((node, found) for node, found in on.items() if len(found) == 1)
        with load_on(followed) as load:
            os.kill(killed[0].pid, signal.SIGKILL)
            cluster.remove_node(victim, allow_graceful=False)
            began = time.monotonic()
            status_that(placement, lambda now: killed[0].name not in names(now))
            settled(placement)
            took_s = time.monotonic() - began
        followed.close()
        placement.remove()
    assert load.counts["lost"] <= CLIENTS, load.faults
    assert took_s < 20.0


def names(status):
    return {one.name for one in replicas(status)}


@pytest.fixture
def redis(tmp_path):
    """The port of a Redis server."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    yield port
    server.terminate()
    server.wait()


def test_without_its_head_a_cluster_serves_and_with_redis_it_goes_on(models, redis, monkeypatch):
    monkeypatch.setenv("RAY_REDIS_ADDRESS", f"127.0.0.1:{redis}")
    with (
        cluster_of({"num_cpus": 2}, {"num_cpus": 2}) as cluster,
        RayPlacement(cluster.address) as placement,
    ):
        before = replicas(bring(placement, group(models, 2)))
        followed = Followed(cluster.address)
        with load_on(followed) as load:
            cluster.head_node.kill_gcs_server()
            os.kill(before[0].pid, signal.SIGTERM)  # this is heard of without the head
            until(lambda: len(followed.ready) == 1)
            enough = load.counts["answered"] + 1000
            until(lambda: load.counts["answered"] > enough)
            cluster.head_node.start_gcs_server()
            status_that(placement, lambda now: now.is_settled)
        assert {before[1].name} < names(placement.status())
        followed.close()
        placement.remove()
    assert load.counts["lost"] == 0, load.faults
