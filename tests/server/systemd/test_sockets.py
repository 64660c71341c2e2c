"""Sockets as systemd passes them: real ones, at descriptors that follow each other."""

import os
import socket
from contextlib import ExitStack, suppress

import pytest

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.systemd import sockets
from inferd.server.systemd.sockets import are_sockets_passed, arranged, passed_sockets, placed

PID = 4711
FIRST = 700  # in these tests systemd's descriptors begin here, not at 3, which pytest may use


@pytest.fixture
def passed(monkeypatch):
    """passed(names, sockets...) has the sockets passed to process 4711; returns what it gets."""
    monkeypatch.setattr(sockets, "_FIRST", FIRST)
    with ExitStack() as stack:

        def run(names, *sockets):
            for at, one in enumerate(sockets):
                os.dup2(one.fileno(), FIRST + at)
                one.close()
            environ = {"LISTEN_PID": str(PID), "LISTEN_FDS": str(len(sockets)), "OTHER": "1"}
            if names is not None:
                environ["LISTEN_FDNAMES"] = names
            assert are_sockets_passed(environ, PID)
            try:
                found = passed_sockets(environ, PID)
            except InvalidConfig:
                with suppress(OSError):
                    os.close(FIRST)
                raise
            assert environ == {"OTHER": "1"}
            for _, one in found:
                stack.enter_context(one)
            return found

        yield run


def listener(address="127.0.0.1"):
    return socket.create_server((address, 0))


def port_of(one):
    return one.getsockname()[1]


def test_names_tell_what_sockets_are_for(passed):
    sockets = [listener() for _ in range(4)]
    numbers = [port_of(one) for one in sockets]
    config = ServerConfig(allow_vertex_ai=True)
    found = arranged(passed("vertex-ai:http:grpc:metrics", *sockets), config, "127.0.0.1")
    assert {kind: one.number for kind, one in found.items()} == dict(
        zip(["Vertex AI", "HTTP", "gRPC", "Metrics"], numbers, strict=True)
    )
    for port in found.values():
        for one in port.sockets:
            assert (one.getblocking(), one.get_inheritable()) == (False, False)


@pytest.mark.parametrize("names", [None, "inferd.socket:inferd.socket", "unknown", ""])
def test_without_names_of_ours_numbers_tell_it(passed, names):
    first, second = listener(), listener()
    config = ServerConfig(http_port=port_of(second), grpc_port=port_of(first))
    found = arranged(passed(names, first, second), config, "127.0.0.1")
    assert {kind: one.number for kind, one in found.items()} == {
        "gRPC": config.grpc_port,
        "HTTP": config.http_port,
    }


def test_unix_sockets_are_told_by_their_names(passed, tmp_path):
    sockets = []
    for name in ("h", "g"):
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(str(tmp_path / name))
        sockets[-1].listen()
    found = arranged(passed("http:grpc", *sockets), ServerConfig(), "127.0.0.1")
    assert {kind: one.paths for kind, one in found.items()} == {
        "Unix": [str(tmp_path / "h")],
        "gRPC Unix": [str(tmp_path / "g")],
    }
    config = placed(ServerConfig(), "127.0.0.1", found)
    assert config.http_unix_socket == str(tmp_path / "h")
    assert config.grpc_unix_socket == str(tmp_path / "g")


def test_addresses_become_those_of_the_sockets(passed):
    """Whether clients may register shared memory goes by who can connect."""
    first, second = listener("0.0.0.0"), listener("127.0.0.2")
    config = ServerConfig(http_port=port_of(first))
    both = passed("http:http", second, first)
    with pytest.raises(InvalidConfig, match="sockets with several ports for HTTP"):
        arranged(both, config, "127.0.0.1")
    config = placed(config, "127.0.0.1", arranged(both[1:], config, "127.0.0.1"))
    assert config.http_address == "0.0.0.0"
    assert (config.grpc_address, config.metrics_address) == ("127.0.0.1", "127.0.0.1")


def test_an_address_that_others_can_reach_counts_more(passed):
    first = listener("127.0.0.1")
    second = socket.create_server(("127.0.0.2", port_of(first)))
    config = ServerConfig(http_port=port_of(first), grpc_port=port_of(first))
    found = arranged(passed("", first, second), config, "127.0.0.1")
    assert len(found["HTTP"].sockets) == 2
    assert placed(config, "::1", found).grpc_address == "127.0.0.1"
    assert sockets._address(found["HTTP"]._replace(sockets=found["HTTP"].sockets)) == "127.0.0.1"


def test_without_sockets_the_configuration_stays():
    config = ServerConfig()
    assert placed(config, "127.0.0.1", {}) is config


@pytest.mark.parametrize(
    ("name", "config", "complaint"),
    [
        (
            "http",
            ServerConfig(allow_http=False),
            r"the socket 'http' \(port \d+\), which is for no",
        ),
        ("sagemaker", ServerConfig(), "which is for no port"),
        ("web", ServerConfig(), "FileDescriptorName= may be one of http, grpc"),
    ],
)
def test_a_socket_for_nothing_is_refused(passed, name, config, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        arranged(passed(name, listener()), config, "127.0.0.1")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_does_not_listen_is_refused(passed, kind):
    with pytest.raises(InvalidConfig, match="'http' does not listen for connections"):
        passed("http", socket.socket(socket.AF_INET, kind))


def test_a_descriptor_that_is_no_socket_is_refused(passed, tmp_path):
    with pytest.raises(InvalidConfig, match="passed by systemd as 'x', is no socket"):
        passed("x", open(tmp_path / "f", "w"))  # noqa: SIM115 - `passed` closes it


@pytest.mark.parametrize("count", ["x", "-1", "1001", "1" * 5000])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(InvalidConfig, match="expected a number of sockets"):
        passed_sockets({"LISTEN_PID": str(PID), "LISTEN_FDS": count}, PID)


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": str(PID), "LISTEN_FDS": "0"}],
)
def test_what_is_for_another_process_is_left_alone(environ):
    assert not are_sockets_passed(environ, PID)
    assert passed_sockets(environ, PID) == []
    assert environ == {}
