"""TLS, client certificates and API keys."""

import numpy as np
import pytest
from client_serving import serve

from inferd.client import BadAnswer, ConnectFailed, ConnectionLost, Denied

X = np.arange(4, dtype=np.float32).reshape(1, 4)


@pytest.fixture(scope="module")
def secured(certificates, tmp_path_factory):
    import hashlib

    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"all:{hashlib.sha256(b'right').hexdigest()}\n")
    files = [
        f"--{one}-{what}={certificates / name}"
        for one in ("http", "grpc")
        for what, name in (("server-cert", "server.pem"), ("server-key", "server.key"))
    ]
    flags = ["--http-use-ssl", "--grpc-use-ssl", *files, f"--api-key-file={keys}"]
    yield from serve(*flags)


def test_calls_over_tls_with_a_key(kind, protocol, secured, certificates):
    options = {"ca_file": str(certificates / "ca.pem"), "api_key": "right"}
    with kind(secured.url(protocol), **options) as client:
        for _ in range(3):
            result = client.infer("m", {"INPUT0": X, "INPUT1": X})
            np.testing.assert_array_equal(result["OUTPUT0"], 2 * X)
        large = np.arange(2_000_000, dtype=np.float32)
        result = client.infer("all", {"IN_FP32": large}, outputs=["OUT_FP32"])
        np.testing.assert_array_equal(result["OUT_FP32"], large)


def test_a_certificate_that_nobody_vouches_for(kind, protocol, secured):
    with (
        kind(secured.url(protocol), api_key="right", retries=0) as client,
        pytest.raises(ConnectFailed, match=r"not trusted.*ca_file"),
    ):
        client.infer("m", {"INPUT0": X, "INPUT1": X})


def test_no_key_and_a_wrong_one(kind, protocol, secured, certificates):
    for key in ("", "wrong"):
        options = {"ca_file": str(certificates / "ca.pem"), "api_key": key}
        with kind(secured.url(protocol), **options) as client:
            with pytest.raises(Denied) as found:
                client.infer("m", {"INPUT0": X, "INPUT1": X})
            assert found.value.reason in ("401", "UNAUTHENTICATED")
            assert client.is_live()


def test_a_large_body_that_the_server_does_not_read(kind, protocol, secured, certificates):
    options = {"ca_file": str(certificates / "ca.pem"), "timeout_s": 20}
    with kind(secured.url(protocol), **options) as client, pytest.raises(Denied):
        client.infer("all", {"IN_FP32": np.zeros(6_000_000, np.float32)})


def test_the_port_of_the_other_protocol_over_tls(kind, secured, certificates):
    options = {"ca_file": str(certificates / "ca.pem"), "retries": 0}
    url = secured.grpc_url.replace("grpc", "http")
    with (
        kind(url, **options) as client,
        pytest.raises((BadAnswer, ConnectFailed, ConnectionLost), match=r"grpcs?://|TLS"),
    ):
        client.is_live()
    url = secured.http_url.replace("http", "grpc")
    with (
        kind(url, **options) as client,
        pytest.raises((BadAnswer, ConnectFailed), match="https://"),
    ):
        client.is_live()
