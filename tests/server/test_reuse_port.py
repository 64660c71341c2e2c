"""Two servers on one port: --reuse-http-port and --reuse-grpc-port."""

import socket

import pytest
from server_thread import server_in_thread

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def config(repository, echo):
    """config(option=value) is the configuration of a server on ports the system chooses."""
    models = str(repository(m=echo()))

    def build(**more):
        given = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "model_repository": (models,)}
        return ServerConfig(**(given | more))

    return build


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def speaks_http2(port):
    """Tell whether a server at `port` answers the preface with a SETTINGS frame."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(PREFACE + bytes(3) + b"\4\0" + bytes(4))
        return client.recv(100)[3:4] == b"\4"


def test_two_servers_share_the_port_of_http(config, ask):
    with server_in_thread(config(id="one", reuse_http_port=True)) as one:
        port = one.http_port
        shared = config(id="two", reuse_http_port=True, http_port=port)
        with server_in_thread(shared) as two:
            assert two.http_port == port
            seen = {ask(port, "/v2")[1]["name"] for _ in range(60)}
            assert seen == {"one", "two"}


def test_two_servers_share_the_port_of_grpc(config):
    with server_in_thread(config(reuse_grpc_port=True)) as one:
        port = one.grpc_port
        with server_in_thread(config(reuse_grpc_port=True, grpc_port=port)) as two:
            assert two.grpc_port == port
            assert speaks_http2(port)


@pytest.mark.slow  # gRPC's own library
def test_two_servers_share_the_port_of_grpcio(config):
    shared = {"grpc_transport": "grpcio", "reuse_grpc_port": True, "grpc_port": free_port()}
    with server_in_thread(config(**shared)) as one, server_in_thread(config(**shared)) as two:
        assert one.grpc_port == two.grpc_port == shared["grpc_port"]
        assert speaks_http2(two.grpc_port)


@pytest.mark.parametrize("option", ["reuse_http_port", "reuse_grpc_port"])
def test_one_port_for_both_protocols_is_shared_by_either_option(config, ask, option):
    port = free_port()
    shared = {"http_port": port, "grpc_port": port, option: True}
    with server_in_thread(config(id="one", **shared)):
        with server_in_thread(config(id="two", **shared)):
            assert {ask(port, "/v2")[1]["name"] for _ in range(60)} == {"one", "two"}
        assert speaks_http2(port)


def test_a_port_that_is_not_shared_by_both_stops_the_start(config):
    with server_in_thread(config(reuse_http_port=True)) as one:
        alone = config(http_port=one.http_port)
        with (
            pytest.raises(InvalidConfig, match="for HTTP: address already in use"),
            server_in_thread(alone),
        ):
            pass


def test_a_unix_socket_is_not_shared_and_the_error_says_so(config, tmp_path):
    shared = config(reuse_http_port=True, http_unix_socket=str(tmp_path / "http.sock"))
    expected = "address already in use; --reuse-http-port shares the TCP port, not a Unix socket"
    with (
        server_in_thread(shared),
        pytest.raises(InvalidConfig, match=expected),
        server_in_thread(shared),
    ):
        pass
