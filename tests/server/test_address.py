import pytest

from inferd.server.address import default_address, host_and_port, in_container, is_loopback


@pytest.mark.parametrize(
    ("environ", "files", "expected"),
    [
        ({}, set(), False),
        ({"CONTAINER": "x", "KUBERNETES_SERVICE_HOST": ""}, {"/etc"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, set(), True),
        ({"container": "podman"}, set(), True),
        ({}, {"/.dockerenv"}, True),
        ({}, {"/run/.containerenv"}, True),
    ],
)
def test_a_container_is_recognized_by_its_marks(environ, files, expected):
    assert in_container(environ, files.__contains__) is expected


def test_a_container_binds_all_interfaces_and_a_machine_only_itself():
    inside = default_address({"container": "docker"}, lambda path: False)
    outside = default_address({}, lambda path: False)
    assert inside.address == "0.0.0.0"
    assert inside.reason == "all interfaces, because this is a container"
    assert outside.address == "127.0.0.1"
    assert outside.reason == "this machine only, because this is no container"


def test_ipv6_addresses_get_brackets():
    assert host_and_port("::1", 80) == "[::1]:80"
    assert host_and_port("127.0.0.1", 80) == "127.0.0.1:80"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(address, expected):
    assert is_loopback(address) is expected
