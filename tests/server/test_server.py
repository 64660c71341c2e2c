import asyncio
import contextlib
import hashlib
import http.client
import socket
import ssl

import pytest
from server_thread import server_in_thread
from tritonclient.grpc import InferenceServerClient

from inferd.config.contradictions import check_server_config
from inferd.config.options.access import make_key
from inferd.config.ports import listening
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.server import Server


@pytest.fixture
def config(repository, echo):
    """config(option=value) is the configuration of a server on ports the system chooses."""
    models = str(repository(m=echo()))

    def build(**more):
        given = {"http_port": 0, "grpc_port": 0, "model_repository": (models,)}
        return ServerConfig(**(given | more))

    return build


def test_a_server_is_a_context_that_answers_inside(config, ask, body):
    async def serve():
        async with Server(config()) as server:
            status, answer = await asyncio.to_thread(
                ask, server.http_port, "/v2/models/m/infer", body
            )
            assert (status, answer["outputs"][0]["data"]) == (200, [7.0])
            assert server.grpc_port
            return server

    server = asyncio.run(serve())
    assert (server.http_port, server.grpc_port) == (0, 0)


def test_two_servers_fit_in_one_process(config, ask):
    async def serve():
        async with Server(config(id="one")) as one, Server(config(id="two")) as two:
            ports = (one.http_port, two.http_port)
            return [(await asyncio.to_thread(ask, port, "/v2"))[1]["name"] for port in ports]

    assert asyncio.run(serve()) == ["one", "two"]


def test_a_server_without_a_name_is_called_inferd(config, ask):
    with server_in_thread(config(allow_grpc=False, allow_metrics=False)) as server:
        assert ask(server.http_port, "/v2")[1]["name"] == "inferd"
        assert server.places() == [("HTTP", f"http://127.0.0.1:{server.http_port}")]


def test_without_http_only_grpc_listens(config):
    with server_in_thread(config(allow_http=False, allow_metrics=False)) as server:
        assert server.http_port == 0
        assert server.places() == [("gRPC", f"127.0.0.1:{server.grpc_port}")]


def test_it_is_live_from_open_and_ready_from_load_to_drain(config, ask):
    async def statuses(server):
        paths = ("/v2/health/live", "/v2/health/ready")
        return [(await asyncio.to_thread(ask, server.http_port, path))[0] for path in paths]

    async def serve():
        server = Server(config(allow_grpc=False))
        await server.open()
        opened = await statuses(server)
        await server.load()
        loaded = await statuses(server)
        delay = asyncio.create_task(server.drain(timeout_s=60, delay_s=60))
        await asyncio.sleep(0)
        draining = await statuses(server)
        delay.cancel()
        await server.stop()
        return opened, loaded, draining

    assert asyncio.run(serve()) == ([200, 400], [200, 200], [200, 400])


def test_draining_an_idle_server_is_done_at_once(config):
    async def serve():
        server = Server(config())
        await server.start()
        drained = await server.drain(timeout_s=60)
        await server.stop()
        return drained

    assert asyncio.run(serve()) is True


def test_draining_tells_when_the_time_was_too_short(config):
    async def serve():
        server = Server(config(allow_grpc=False))
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n")
        # One whole request on another connection: by its answer, the first one has been read.
        reader, other = await asyncio.open_connection("127.0.0.1", server.http_port)
        other.write(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()
        drained = await server.drain(timeout_s=0.01)
        await server.stop()
        writer.close()
        other.close()
        return drained

    assert asyncio.run(serve()) is False


def test_a_start_that_fails_leaves_no_port_open(config):
    async def serve():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = Server(config(grpc_port=taken.getsockname()[1]))
            with pytest.raises(InvalidConfig, match="for gRPC: address already in use"):
                await server.start()
            return server

    assert asyncio.run(serve()).places() == []


def test_a_repository_that_is_not_there_fails_the_start(config, tmp_path):
    missing = config(model_repository=(str(tmp_path / "nowhere"),))
    with pytest.raises(InvalidConfig, match="nowhere"), server_in_thread(missing):
        pass


def test_a_unix_socket_serves_too_and_is_gone_at_the_end(config, tmp_path):
    path = tmp_path / "http.sock"
    with server_in_thread(config(http_unix_socket=str(path))) as server:
        assert ("HTTP", f"unix:{path}") in server.places()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert not path.exists()


@pytest.mark.parametrize("is_one_port", [False, True])
def test_grpc_is_served_on_a_unix_socket_too(config, tmp_path, is_one_port):
    path = tmp_path / "grpc.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1] if is_one_port else 0
    settings = config(grpc_unix_socket=str(path), http_port=port, grpc_port=port)
    with server_in_thread(settings) as server:
        assert ("gRPC", f"unix:{path}") in server.places()
        with InferenceServerClient(f"unix:{path}") as client:
            assert client.is_model_ready("m")
    assert not path.exists()


@pytest.mark.parametrize("word", ["http", "grpc"])
def test_a_unix_socket_that_cannot_be_made_is_named(config, tmp_path, word):
    missing = config(**{f"{word}_unix_socket": str(tmp_path / "no" / "s")})
    with pytest.raises(InvalidConfig, match=f"--{word}-unix-socket"), server_in_thread(missing):
        pass


def test_a_unix_socket_that_another_server_has_stays_its_own(config, tmp_path):
    settings = config(http_unix_socket=str(tmp_path / "http.sock"))
    with server_in_thread(settings):
        with (
            pytest.raises(InvalidConfig, match="address already in use"),
            server_in_thread(settings),
        ):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(settings.http_unix_socket)


def test_https_needs_the_right_certificate_authority(config, certificates, ask):
    secure = config(
        http_use_ssl=True,
        http_server_cert=str(certificates / "server.pem"),
        http_server_key=str(certificates / "server.key"),
    )
    with server_in_thread(secure) as server:
        assert server.places()[0] == ("HTTP", f"https://127.0.0.1:{server.http_port}")
        trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
        client = http.client.HTTPSConnection("127.0.0.1", server.http_port, context=trusting)
        client.request("GET", "/v2/health/ready")
        assert client.getresponse().status == 200
        client.close()


def test_mutual_tls_refuses_clients_without_a_certificate(config, certificates):
    secure = config(
        http_use_ssl_mutual=True,
        http_server_cert=str(certificates / "server.pem"),
        http_server_key=str(certificates / "server.key"),
        http_root_cert=str(certificates / "ca.pem"),
    )

    def status(port, context):
        client = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        try:
            client.request("GET", "/v2/health/ready")
            return client.getresponse().status
        finally:
            client.close()

    with server_in_thread(secure) as server:
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            status(server.http_port, context)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        assert status(server.http_port, context) == 200


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"http_server_cert": "nowhere.pem"}, "--http-server-cert and --http-server-key"),
        ({"http_root_cert": "nowhere.pem", "http_use_ssl_mutual": True}, "--http-root-cert"),
    ],
)
def test_an_unusable_certificate_is_named_by_its_flag(config, certificates, given, flag):
    usable = {
        "http_use_ssl": True,
        "http_server_cert": str(certificates / "server.pem"),
        "http_server_key": str(certificates / "server.key"),
    }
    with (
        pytest.raises(InvalidConfig, match=f"^{flag}: "),
        server_in_thread(config(**(usable | given))),
    ):
        pass


# --- metrics ---


def scrape(server):
    client = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
    try:
        client.request("GET", "/metrics")
        answer = client.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        client.close()


def test_metrics_have_a_port_of_their_own(config, ask, body):
    with server_in_thread(config()) as server:
        assert ask(server.http_port, "/v2/models/m/infer", body)[0] == 200
        text = scrape(server)
        where = f"http://127.0.0.1:{server.metrics_port}/metrics"
        assert ("Metrics", where) in server.places()
        assert 'nv_inference_request_success{model="m",version="1"} 1\n' in text
        assert "nv_cpu_utilization" in text
        assert ask(server.http_port, "/metrics")[0] == 404
    assert server.metrics_port == 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_metrics_are_on_the_http_port_if_both_are_the_same(config, ask, body):
    port = free_port()
    with server_in_thread(config(http_port=port, metrics_port=port)) as server:
        assert (server.http_port, server.metrics_port) == (port, port)
        assert ("Metrics", f"http://127.0.0.1:{port}/metrics") in server.places()
        assert ask(port, "/v2/models/m/infer", body)[0] == 200
        assert 'nv_inference_request_success{model="m",version="1"} 1\n' in scrape(server)
        assert ask(port, "/metrics", b"")[0] == 405


def test_metrics_on_a_port_for_everything_need_a_key_if_calls_do(config, tmp_path):
    port, keys = free_port(), tmp_path / "keys"
    good, other = make_key("prometheus", "statistics"), make_key("client", "inference")
    keys.write_text(f"{good.line}\n{other.line}\n")
    given = dict.fromkeys(("http_port", "grpc_port", "metrics_port"), port)

    def status(headers):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.closing(client):
            client.request("GET", "/metrics", headers=headers)
            return client.getresponse().status

    with server_in_thread(config(**given, api_key_file=str(keys))):
        assert status({}) == 401
        assert status({"x-api-key": other.key}) == 403
        assert status({"Authorization": f"Bearer {good.key}"}) == 200


def test_metrics_on_the_http_port_cannot_have_another_address(config):
    given = {"http_port": 8000, "metrics_port": 8000}
    check_server_config(config(**given, http_address="::1", metrics_address="::1"))
    with pytest.raises(InvalidConfig, match="--metrics-address must be left out"):
        check_server_config(config(**given, metrics_address="::1"))
    check_server_config(config(**given, metrics_address="::1", allow_metrics=False))


def test_metrics_go_where_http_goes_unless_an_option_says_otherwise(config):
    def metrics_address(config):
        by_protocol = {one.protocol: one.address for one in listening(config, "127.0.0.1")}
        return by_protocol["Metrics"]

    assert metrics_address(config(http_address="127.0.0.2")) == "127.0.0.2"
    assert metrics_address(config(metrics_address="127.0.0.3")) == "127.0.0.3"


def test_metrics_of_the_processors_may_be_left_out(config):
    with server_in_thread(config(allow_cpu_metrics=False, allow_gpu_metrics=False)) as server:
        assert "nv_cpu_utilization" not in scrape(server)


def test_summaries_may_be_requested(config):
    with server_in_thread(config(metrics_config=("summary_latencies=true",))) as server:
        assert 'nv_inference_queue_summary_us{model="m",version="1",quantile="0.5"}' in scrape(
            server
        )


def test_a_metrics_port_that_is_taken_stops_the_start(config):
    async def serve():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = Server(config(metrics_port=taken.getsockname()[1]))
            with pytest.raises(InvalidConfig, match=r"for metrics: address .*--metrics-port"):
                await server.start()
            return server

    assert asyncio.run(serve()).places() == []


def test_metrics_are_reported_while_the_server_drains(config):
    async def serve():
        async with Server(config()) as server:
            drain = asyncio.create_task(server.drain(timeout_s=60, delay_s=60))
            await asyncio.sleep(0)
            text = await asyncio.to_thread(scrape, server)
            drain.cancel()
            return text

    assert "nv_inference_count" in asyncio.run(serve())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"http_address": "localhost", "grpc_address": "::1"}, True),
        ({"http_address": "0.0.0.0"}, False),
        ({"grpc_address": "10.0.0.1"}, False),
        ({"grpc_address": "10.0.0.1", "allow_grpc": False}, True),
        ({"http_address": "::", "allow_http": False}, True),
        ({"http_address": "0.0.0.0", "allow_client_shm": True}, True),
        ({"allow_client_shm": False}, False),
    ],
)
def test_clients_may_register_shared_memory_only_on_this_machine_by_default(
    config, options, expected
):
    assert Server(config(**options)).engine.regions.allowed is expected


def test_a_container_whose_ports_bind_all_interfaces_has_no_shared_memory(config):
    assert not Server(config(), default_address="0.0.0.0").engine.regions.allowed


# --- repository agents ---

AGENT = """
model_repository_agents {
  agents [ { name: "%s" parameters { key: "MD5:1/weights" value: "%s" } } ]
}
"""


def test_a_model_whose_files_are_not_those_of_its_checksum_does_not_load(
    config, repository, echo, ask
):
    digest = hashlib.md5(b"weights", usedforsecurity=False).hexdigest()
    root = repository(
        good=echo() + AGENT % ("checksum", digest),
        changed=echo() + AGENT % ("checksum", "0" * 32),
        odd=echo() + AGENT % ("sign", digest),
    )
    for name in ("good", "changed", "odd"):
        (root / name / "1" / "weights").write_bytes(b"weights")
    with server_in_thread(config()) as server:
        assert ask(server.http_port, "/v2/models/good/ready")[0] == 200
        assert ask(server.http_port, "/v2/models/changed/ready")[0] != 200
        rows = ask(server.http_port, "/v2/repository/index", b"{}")[1]
        reasons = {row["name"]: row.get("reason", "") for row in rows}
    assert f"the MD5 of '1/weights' is {digest}, expected {'0' * 32}" in reasons["changed"]
    assert "there is no repository agent 'sign', known are: checksum" in reasons["odd"]
