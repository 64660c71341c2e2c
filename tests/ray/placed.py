"""Clusters of this machine alone, deployments on them, and waiting for what these become."""

import os
import time
from contextlib import contextmanager

import ray
from placed_load import Load
from ray.cluster_utils import Cluster
from running_fleet import until

from inferd.ray.spec import DeploymentSpec, GroupSpec, ScalingRule

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
        for node in list(cluster.worker_nodes):  # without their head, they do not end when asked
            cluster.remove_node(node, allow_graceful=False)
        cluster.shutdown()
        os.environ.pop(PATIENCE)
        if before is not None:
            os.environ[PATIENCE] = before


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


def names(status):
    return {one.name for one in replicas(status)}
