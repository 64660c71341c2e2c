"""Which server a command speaks to: the arguments that say it, and the client they become."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.cli.parser import CommandParser, positive_seconds
from inferd.errors import InferdError, InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from inferd.client import Client

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "INFERD_API_KEY"

SERVER_HELP = f"""\
URL is http://HOST:PORT, https://..., grpc://HOST:PORT or grpcs://...; the default is
{DEFAULT_URL}, or the variable INFERD_URL. Any server that speaks V2 will do: inferd,
Triton, MLServer, KServe. An API key is the content of --api-key-file, or of the variable
{KEY_VARIABLE}.
"""


def add_server_arguments(parser: CommandParser) -> None:
    """Add those that say which server is meant."""
    parser.section("the server")
    parser.option("--url", "URL", f"where it listens [{DEFAULT_URL}]")
    parser.option("--api-key-file", "FILE", "a file with the API key")
    parser.repeated("--header", "NAME:VALUE", "a header of each call, metadata over gRPC")
    parser.option("--ca-file", "FILE", "certificates to trust, for TLS")
    parser.option("--cert-file", "FILE", "the client's own certificate")
    parser.option("--key-file", "FILE", "the key of that certificate")
    parser.option("--timeout", "SECONDS", "how long a call may take [60]", 60.0, positive_seconds)


def url_of(given: argparse.Namespace) -> str:
    """Return the URL that is meant; one without a scheme is that of HTTP."""
    # As for the server's address and its key: a flag comes first.
    url: str = given.url or os.environ.get("INFERD_URL") or DEFAULT_URL
    return url if "://" in url else f"http://{url}"


def client_options(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the client. Raises InvalidConfig."""
    options: dict[str, Any] = {"timeout_s": given.timeout}
    headers = {}
    for line in given.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidConfig(f"--header {line} is not NAME:VALUE")
        headers[name.strip()] = value.strip()
    if headers:
        options["headers"] = headers
    if key := _key(given):
        options["api_key"] = key
    # Not all commands send tensors.
    if getattr(given, "text", False):
        options["binary"] = False
    options |= {
        name: getattr(given, name)
        for name in ("ca_file", "cert_file", "key_file")
        if getattr(given, name)
    }
    return options


def _key(given: argparse.Namespace) -> str:
    if not given.api_key_file:
        # Not an argument: other users of the machine see those.
        return os.environ.get(KEY_VARIABLE, "")
    try:
        return Path(given.api_key_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidConfig(f"cannot read --api-key-file {given.api_key_file}: {reason}") from error


def client_of(given: argparse.Namespace) -> "Client":
    """Return a client of the server that is meant. Raises InferdError."""
    from inferd.client import Client

    return Client(url_of(given), **client_options(given))


_FLAGS = {"connect_timeout_s": "--timeout", "timeout_s": "--timeout", "ca_file": "--ca-file"}
"""What the client's texts call options by their names in Python, and what they are here."""


def failure_text(error: InferdError, url: str, *, stream: bool = False) -> str:
    """Return the text of an error, with what to do next where the error does not say it.

    `stream` says that a stream was wanted, which some servers, as Triton, have over gRPC alone.
    """
    from inferd.client.errors import BadAnswer, ConnectFailed, ConnectionLost, Denied, NotFound

    text = error.message
    for option, flag in _FLAGS.items():
        text = text.replace(option, flag)
    if stream and url.startswith("http") and (isinstance(error, NotFound) or text[:4] == "404:"):
        return f"{text}; servers without infer_stream have streams over gRPC: --url grpc://..."
    scheme = url.partition("://")[0]
    if isinstance(error, ConnectionLost) and not scheme.endswith("s"):
        return f"{text}. If it speaks TLS, write {scheme}s://"
    # By its words, since the class is the same for every reason.
    if isinstance(error, ConnectFailed) and "no server listens" in text:
        return f"{text}; start one with inferd serve, or name another with --url"
    if isinstance(error, Denied):
        return f"{text}; give a key with --api-key-file, or the variable {KEY_VARIABLE}"
    if isinstance(error, NotFound) and "model" in text.lower() and "/v2/" not in text:
        return f"{text}; inferd models --url {url} lists those of the server"
    # The client has said already what listens there.
    if isinstance(error, NotFound | BadAnswer) and "; it is " not in text:
        return f"{text}. Is {url} a server that speaks V2? See --url"
    return text


def run_command(
    parser: CommandParser,
    arguments: Sequence[str],
    act: Callable[[argparse.Namespace], int],
    interrupted: str,
) -> int:
    """Do what the arguments say, and return the exit code; `interrupted` is said of Ctrl-C."""
    given = parser.read(arguments)
    if isinstance(given, int):
        return given
    # From here on Ctrl-C raises KeyboardInterrupt; during imports it ends the process: see main.py.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return act(given)
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: {interrupted}\n")
        # 128 + SIGINT, as shells have it for what a signal ended.
        return 130
    except InferdError as error:
        text = failure_text(error, url_of(given), stream=given.stream)
        sys.stderr.write(f"{parser.prog}: {text}\n")
        return code_of(error)


def code_of(error: InferdError) -> int:
    """Return the exit code for an error: 2 for wrong arguments, such as a URL that is none."""
    from inferd.client.errors import InvalidTarget

    return 2 if isinstance(error, InvalidConfig | InvalidRequest | InvalidTarget) else 1
