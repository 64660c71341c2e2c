"""How many processes --workers asks for, and the share that each has of the limits."""

import os

import pytest

from inferd.config.server import ServerConfig
from inferd.config.workers import check_workers, processor_count, share_of, worker_count
from inferd.errors import InvalidConfig


@pytest.mark.parametrize("text", ["1", "4", " 7 "])
def test_a_number_is_that_many(text):
    assert worker_count(ServerConfig(workers=text)) == int(text)


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "1.5", "513", "9" * 30])
def test_anything_else_is_an_error_that_says_what_is_expected(text):
    with pytest.raises(InvalidConfig, match=r"--workers is '.*', expected a number from 1 to 512"):
        worker_count(ServerConfig(workers=text))


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_auto_is_what_processors_and_the_control_group_allow(tmp_path, files, count):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    there = len(os.sched_getaffinity(0))
    assert processor_count(tmp_path) == (there if count is None else min(there, count))
    assert worker_count(ServerConfig(workers="auto"), tmp_path) == processor_count(tmp_path)


def test_the_shares_of_all_processes_make_the_limits():
    config = ServerConfig(max_inflight_requests=10, http_max_connections=9)
    share = share_of(config, 4)
    assert share.max_inflight_requests == 3
    assert share.http_max_connections == 4


def test_grpcio_cannot_take_connections():
    with pytest.raises(InvalidConfig, match="--grpc-transport=grpcio cannot take connections"):
        check_workers(ServerConfig(workers="2", grpc_transport="grpcio"))
    check_workers(ServerConfig(workers="2"))
