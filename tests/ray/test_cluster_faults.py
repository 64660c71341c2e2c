"""Machines of a Ray cluster that fail: a node for good, the head for a while."""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest
import ray
from placed import (
    CLIENTS,
    bring,
    cluster_of,
    front_of,
    group,
    load_on,
    names,
    replicas,
    settled,
    status_that,
)
from placed_load import Followed
from ray._private.state import actors
from running_fleet import until

from inferd.ray.connection import RayPlacement
from inferd.ray.head import controller_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("count", [1, 2])
def test_nodes_that_are_killed_lose_what_they_had_under_way(models, count):
    with (
        cluster_of({"num_cpus": 1}, {"num_cpus": 1}, {"num_cpus": 3}) as cluster,
        RayPlacement(cluster.address) as placement,
        Followed(cluster.address) as followed,
        front_of(cluster.address) as front,
    ):
        status = bring(placement, group(models, 3, cpus=1.0))
        assert node_of_controller() == cluster.head_node.node_id
        small = cluster.extra[:2]
        ids = {one["RayletSocketName"]: one["NodeID"] for one in ray.nodes()}
        marks = [f"({ids[node.raylet_socket_name][:6]})" for node in small[:count]]
        killed = [one for one in replicas(status) if one.node.endswith(tuple(marks))]
        assert len(killed) == count
        front.wait_for(3)
        with load_on(followed) as load, load_on(front) as load_of_front:
            for one in killed:
                os.kill(one.pid, signal.SIGKILL)
            for node in small[:count]:
                cluster.remove_node(node, allow_graceful=False)
            began = time.monotonic()
            gone = {one.name for one in killed}
            status_that(placement, lambda now: gone.isdisjoint(names(now)))
            settled(placement)
            took_s = time.monotonic() - began
        placement.remove()
    # One that loses a request at the first may just have come to the second.
    assert load.counts["lost"] <= CLIENTS * count, load.faults
    most = 0 if count == 1 else CLIENTS
    assert load_of_front.counts["lost"] <= most, (load_of_front.faults, front.said)
    assert count > 1 or took_s < 20.0


def node_of_controller():
    [one] = [each for each in actors().values() if each["Name"] == controller_name("inferd")]
    return one["Address"]["NodeID"]


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
        Followed(cluster.address) as followed,
    ):
        before = replicas(bring(placement, group(models, 2)))
        with load_on(followed) as load:
            cluster.head_node.kill_gcs_server()
            until(lambda: not any("error" in each.name for each in threading.enumerate()))
            os.kill(before[0].pid, signal.SIGTERM)  # this is heard of without the head
            until(lambda: len(followed.ready) == 1)
            enough = load.counts["answered"] + 1000
            until(lambda: load.counts["answered"] > enough)
            cluster.head_node.start_gcs_server()
            status_that(placement, lambda now: now.is_settled)
        assert {before[1].name} < names(placement.status())
        placement.remove()
    assert load.counts["lost"] == 0, load.faults
