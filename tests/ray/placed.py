"""Clusters of this machine alone, deployments on them, and waiting for what these become."""

import os
import time
from contextlib import contextmanager

import ray
from placed_load import Load
from ray.cluster_utils import Cluster
from running_fleet import until
from server_process import Process

from inferd.ray.spec import DeploymentSpec, GroupSpec, ScalingRule
from inferd.route.place import Place

MEMORY = 80_000_000  # Ray's least for its object store, which nobody uses
PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
PORTS = ["--address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
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


class Front:
    """`inferd route` as a Load wants it: one place, where all requests go."""

    def __init__(self, route, port):
        self.ready = [Place("front", "127.0.0.1", port, 0)]
        self._route = route

    @property
    def said(self):
        """What the route has written, as far as it has been read."""
        return self._route.said

    def wait_for(self, place_count):
        """Wait until so many places more are sent requests."""
        for _ in range(place_count):
            self._route.wait_for("is sent requests")


@contextmanager
def front_of(address):
    """Yield a Front of the deployment; it ends as it should."""
    route = Process("--ray", address, *PORTS, command=("-m", "inferd", "route"))
    try:
        yield Front(route, int(route.wait_for(r"http://127\.0\.0\.1:(\d+)")[1]))
    finally:
        route.process.terminate()
        code = route.end()
        route.process.stdout.close()
    assert code == 0, route.said


def names(status):
    return {one.name for one in replicas(status)}
