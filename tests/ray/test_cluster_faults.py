"""Machines of a Ray cluster that fail: a node for good, the head for a while."""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest
import ray
from placed import CLIENTS, bring, cluster_of, group, load_on, names, replicas, settled, status_that
from placed_load import Followed
from running_fleet import until

from inferd.ray.connection import RayPlacement

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_node_that_is_killed_loses_what_it_had_under_way(models):
    with (
        cluster_of({"num_cpus": 1}, {"num_cpus": 1}, {"num_cpus": 2}) as cluster,
        RayPlacement(cluster.address) as placement,
        Followed(cluster.address) as followed,
    ):
        status = bring(placement, group(models, 3, cpus=1.0))
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
        placement.remove()
    assert load.counts["lost"] <= CLIENTS, load.faults
    assert took_s < 20.0


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
