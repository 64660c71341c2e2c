"""The units in deploy/systemd fit the server."""

from pathlib import Path

import pytest

from inferd.cli.command_line.flags import read_command_line
from inferd.cli.running import read_words
from inferd.config.server import ServerConfig
from inferd.config.sources import read_settings
from inferd.server.systemd.sockets import _PROTOCOLS

FOLDER = Path(__file__).parents[2] / "deploy/systemd"


def settings_of(name):
    """Return the (name, value) pairs of a unit."""
    lines = (FOLDER / name).read_text().splitlines()
    return [line.partition("=")[::2] for line in lines if line and line[0] not in "#["]


@pytest.fixture
def service():
    """The service, where each setting that is looked at stands once."""
    return dict(settings_of("inferd.service"))


@pytest.fixture
def config(service):
    """The configuration that the service's command line makes."""
    words = service["ExecStart"].split()
    assert words[1] == "serve"
    return read_settings(read_command_line(words[2:]).flags, {}).config


def test_the_command_line_is_one_of_ours(config):
    assert config.model_repository == ("/srv/models",)
    assert config.workers == "auto"


def test_a_stop_has_the_time_that_the_server_takes(service, config):
    assert int(service["TimeoutStopSec"]) > config.exit_timeout_secs + 10


def test_a_reload_is_a_command_of_ours_for_the_port_of_the_service(service, config):
    _, verb, *words = service["ExecReload"].split()
    assert (service["Type"], verb) == ("notify", "reload")
    assert read_words(words, ("--port",)) == {"--port": config.http_port}


def test_the_sockets_are_the_ports_of_the_server():
    ports = [value for name, value in settings_of("inferd.socket") if name == "ListenStream"]
    numbers = [int(port.rpartition(":")[2]) for port in ports]
    defaults = ServerConfig()
    assert numbers == [defaults.http_port, defaults.grpc_port, 8002]


def test_the_names_that_the_socket_tells_are_known():
    comment = (FOLDER / "inferd.socket").read_text().replace("\n#", "")
    listed = comment.partition("FileDescriptorName=")[2].partition(".\n")[0]
    assert listed.replace(" or", ",").split(", ") == list(_PROTOCOLS)
