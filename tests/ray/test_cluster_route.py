"""inferd route in front of a deployment on Ray: what clients of the front lose, who ask once."""

import os
import signal

import pytest
from placed import CLIENTS, bring, cluster_of, group, names, replicas, settled, status_that
from placed_load import Load
from running_fleet import until
from server_process import Process

from inferd.ray.connection import RayPlacement
from inferd.route.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PORTS = ["--address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]


class Front:
    """Where a front serves, as a Load wants it."""

    def __init__(self, port):
        self.ready = [Place("front", "127.0.0.1", port, 0)]


def test_a_front_loses_nothing_while_replicas_come_go_and_are_killed(models):
    with (
        cluster_of({"num_cpus": 2}, {"num_cpus": 2}) as cluster,
        RayPlacement(cluster.address) as placement,
    ):
        bring(placement, group(models))
        route = Process("--ray", cluster.address, *PORTS, command=("-m", "inferd", "route"))
        try:
            port = int(route.wait_for(r"http://127\.0\.0\.1:(\d+)")[1])
            route.wait_for("is sent requests")
            with Load(Front(port), clients=CLIENTS) as load:
                until(lambda: load.counts["answered"] > 100)
                bring(placement, group(models, 3))
                [one, *_] = replicas(bring(placement, group(models, 3), replace=True))
                os.kill(one.pid, signal.SIGKILL)
                status_that(placement, lambda now: one.name not in names(now))
                settled(placement)
                bring(placement, group(models, 1))
                enough = load.counts["answered"] + 200
                until(lambda: load.counts["answered"] > enough)
        finally:
            route.process.terminate()
            code = route.end()
            route.process.stdout.close()
        placement.remove()
    assert load.counts["lost"] == 0, (load.faults[:5], route.said)
    assert code == 0
