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
    nowhere = tmp_path / "nowhere"
    assert processor_count(tmp_path, nowhere) == (there if count is None else min(there, count))
    auto = ServerConfig(workers="auto")
    assert worker_count(auto, tmp_path, nowhere) == processor_count(tmp_path, nowhere)


@pytest.fixture
def sixteen(monkeypatch):
    """A machine with sixteen processors, which this process is not bound to a part of."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(16))


def groups_of(folder, files):
    """Write files of control groups below `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        ("0::/a.slice/b.service\n", {"a.slice/b.service/cpu.max": "250000 100000"}, 3),
        ("0::/a.slice/b.service\n", {"a.slice/cpu.max": "200000 100000"}, 2),
        ("0::/a/b\n", {"a/cpu.max": "500000 100000", "a/b/cpu.max": "max 100000"}, 5),
        ("0::/a/b\n", {"a/cpu.max": "max 100000", "cpu.max": "700000 100000"}, 7),
        ("0::/other/b\n", {"a/b/cpu.max": "200000 100000"}, 16),
        ("0::/../../x\n", {"cpu.max": "300000 100000"}, 3),
        ("0::/\n", {}, 16),
        (
            "3:cpuset:/s\n2:cpu,cpuacct:/a/b\n1:name=systemd:/t\n0::/u\n",
            {"cpu/a/b/cpu.cfs_quota_us": "400000\n", "cpu/a/b/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        (
            "2:cpuset:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            16,
        ),
    ],
)
def test_auto_keeps_the_limits_of_the_control_group_and_of_those_above(
    tmp_path, sixteen, membership, files, count
):
    groups_of(tmp_path / "groups", files)
    (tmp_path / "membership").write_text(membership)
    assert processor_count(tmp_path / "groups", tmp_path / "membership") == count


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ((), 16),
        (("onnxruntime,intra_op_thread_count=4",), 4),
        (("intra_op_thread_count=5",), 3),
        (("pytorch,intra_op_thread_count=4",), 16),
        (("onnxruntime,intra_op_thread_count=99",), 1),
        (("onnxruntime,intra_op_thread_count=0",), 1),
        (("onnxruntime,intra_op_thread_count=many",), 16),
    ],
)
def test_auto_leaves_processors_for_the_threads_that_executions_have(
    tmp_path, sixteen, given, count
):
    config = ServerConfig(workers="auto", backend_config=given)
    assert worker_count(config, tmp_path, tmp_path / "nowhere") == count


def test_the_shares_of_all_processes_make_the_limits():
    config = ServerConfig(max_inflight_requests=10, http_max_connections=9)
    share = share_of(config, 4)
    assert share.max_inflight_requests == 3
    assert share.http_max_connections == 4


def test_grpcio_cannot_take_connections():
    with pytest.raises(InvalidConfig, match="--grpc-transport=grpcio cannot take connections"):
        check_workers(ServerConfig(workers="2", grpc_transport="grpcio"))
    check_workers(ServerConfig(workers="2"))
