"""inferd route in front of a deployment on Ray: what clients of the front lose, who ask once."""

import os
import signal

import pytest
from placed import (
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

from inferd.ray.connection import RayPlacement

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_front_loses_nothing_while_replicas_come_go_and_are_killed(models):
    with (
        cluster_of({"num_cpus": 2}, {"num_cpus": 2}) as cluster,
        RayPlacement(cluster.address) as placement,
    ):
        bring(placement, group(models))
        with front_of(cluster.address) as front:
            front.wait_for(1)
            with load_on(front) as load:
                bring(placement, group(models, 3))
                [one, *_] = replicas(bring(placement, group(models, 3), replace=True))
                os.kill(one.pid, signal.SIGKILL)
                status_that(placement, lambda now: one.name not in names(now))
                settled(placement)
                bring(placement, group(models, 1))
        placement.remove()
    assert load.counts["lost"] == 0, (load.faults[:5], front.said)
