"""inferd infer: one request to a server, or to a model file without one."""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from inferd.cli.parser import CommandParser, count_of, model_of
from inferd.cli.remote.requests import drawn_inputs
from inferd.cli.remote.server import SERVER_HELP, add_server_arguments, client_of, run_command
from inferd.cli.terminal import ProgressLine, columns
from inferd.errors import InvalidRequest

if TYPE_CHECKING:
    from inferd.client import Client, InferResult
    from inferd.tensor.tensor import Tensor

_DESCRIPTION = """\
Sends one inference to a model and shows the answer. MODEL is the name of a model of a server,
or, without --url, the file or the folder of a model, or where it is fetched from (hf://...), which
is then run here without a server.

  inferd infer digits --input image=@seven.png
  inferd infer simple --input INPUT0=@rows.npy --input INPUT1='[[1, 2]]' --url grpc://host:8001
  inferd infer resnet.onnx --input @arrays.npz --output out.npz
"""

_INPUTS = f"""\
inputs:
  NAME=VALUE     JSON: a number, a string, nested lists; what is no JSON is a string
  NAME:FP32=...  the same with a datatype, for a model that declares nothing
  NAME=@FILE     .npy .npz:NAME .json .csv .tsv .parquet .txt (lines), pictures (.png .jpg ...),
                 other files as they are; @- is JSON on standard input
  @FILE          all inputs: .npz, .json (a V2 request, or an object of arrays), or a table with
                 a column for each
Values are fitted to the datatype and the dims that the model declares: numbers are converted
where they stay what they are, a missing batch dim is added, and pictures are resized.

{SERVER_HELP}
The exit code is 0, 1 if there was no answer, or 2 for wrong arguments and inputs.
"""


def run(arguments: Sequence[str]) -> int:
    """Send a request and show the answer. Return the exit code."""
    return run_command(parser(), arguments, _run, "interrupted")


def parser() -> CommandParser:
    """Return what reads the arguments."""
    from inferd.values.picture import SCALES

    made = CommandParser("inferd infer", _DESCRIPTION, _INPUTS)
    made.add_argument("model", metavar="MODEL", type=model_of)
    made.repeated("--input -i", "INPUT", "as below; repeatable")
    made.switch("--random", "draw the inputs at random, in place of --input")
    made.repeated(
        "--shape", "NAME:D,D", "with --random: the dims of an input that has variable ones"
    )
    made.option("--version", "V", "the model's version", "")
    made.option("--outputs", "A,B", "only these outputs are wanted", "")
    made.option("--classes", "N", "the N best classes of each output", 0, int)
    made.repeated(
        "--parameter", "NAME=VALUE", "a parameter of the request; VALUE is JSON, or else a string"
    )
    made.add_argument(
        "--pixels",
        choices=SCALES,
        default="",
        help="what pixels of pictures become [0..1 for floats, 0..255 for integers]",
    )
    made.switch("--text", "send and receive JSON over REST, no binary data")
    made.option("--output -o", "FILE", "write .npz .npy .json .csv or .bin", "")
    made.option("--repeat", "N", "send it N times, and say how long that took", 1, count_of)
    made.switch("--stream", "show any number of answers, each when it is there")
    made.switch("--json", "the answer as one line of JSON")
    add_server_arguments(made)
    return made


def _run(given: argparse.Namespace) -> int:
    from inferd.values.output import check_suffix, save

    if given.stream and (given.output or given.repeat > 1):
        raise InvalidRequest("--stream shows answers as they come: no --output, no --repeat")
    if given.output:
        # Before the request: an answer that cannot be written would be lost.
        check_suffix(given.output)
    with _client(given) as (client, model):
        request = _request(client, model, given)
        if given.stream:
            return _stream(client, model, request, given)
        result, seconds = _repeated(client, model, request, given)
        tensors = [result.tensor(name) for name in result]
    if given.output:
        size = save(given.output, tensors)
    if given.json:
        _write_json(result, tensors, seconds)
    else:
        _write_text(result, tensors, seconds)
        if given.output:
            sys.stdout.write(f"written: {given.output}, {size} bytes\n")
    return 0 if len(seconds) == given.repeat else 130


@contextmanager
def _client(given: argparse.Namespace) -> Iterator[tuple["Client", str]]:
    """Yield a client of the server that has the model, and the model's name there."""
    if given.url or not _is_path(given.model):
        with client_of(given) as client:
            yield client, given.model
        return
    import inferd

    server = inferd.Server(
        # For this machine alone, on a port that the system chooses, while the command runs.
        model_repository=[given.model],
        http_address="127.0.0.1",
        log_info=False,
        log_warning=False,
    )
    with server:
        given.url = server.http_url
        # Keys and certificates are for servers elsewhere.
        given.api_key_file = given.ca_file = given.cert_file = given.key_file = None
        with client_of(given) as client:
            ready = client.models(ready=True)
            names = sorted({one.name for one in ready})
            if len(names) != 1:
                msg = f"{given.model} has {len(names)} models ({', '.join(names[:8])}): name one"
                raise InvalidRequest(msg)
            yield client, names[0]


def _is_path(model: str) -> bool:
    """Return whether MODEL is a file or a folder that is there, and looks like one, or a URL."""
    from inferd.repository.fetch.url import model_url

    if model_url(model) is not None:
        return True
    # A model's name may be that of a file in this folder: only what looks like a path is one.
    looks = os.sep in model or "." in model
    return looks and os.path.exists(model)


def _request(client: "Client", model: str, given: argparse.Namespace) -> list["Tensor"]:
    """Return the inputs that the arguments say, fitted to the model."""
    from inferd.values.fitting import fitted
    from inferd.values.source import read_inputs

    values = read_inputs(given.input)
    # Inputs are fitted to what the model declares, so it is asked first.
    metadata = client.metadata(model, given.version)
    if given.random:
        if values:
            raise InvalidRequest("--random draws all inputs: leave --input away")
        return drawn_inputs(client, metadata, given.version, given.shape)
    found = fitted(values, metadata.inputs, given.pixels)
    for note in found.notes:
        sys.stderr.write(f"{note}\n")
    return found.tensors


def _repeated(
    client: "Client", model: str, tensors: list["Tensor"], given: argparse.Namespace
) -> tuple["InferResult", list[float]]:
    """Return the first answer, and how many seconds each took; Ctrl-C ends it early."""
    inputs = {one.name: one for one in tensors}
    options = _options(given)
    first: InferResult | None = None
    seconds: list[float] = []
    try:
        with ProgressLine() as progress:
            for number in range(given.repeat):
                began_s = time.perf_counter()
                result = client.infer(model, inputs, **options)
                seconds.append(time.perf_counter() - began_s)
                first = first or result
                progress.show((number + 1) / given.repeat, f"{number + 1} of {given.repeat}")
    except KeyboardInterrupt:
        # What has been answered is shown; without any answer Ctrl-C ends the command.
        if first is None:
            raise
    assert first is not None
    return first, seconds


def _stream(
    client: "Client", model: str, tensors: list["Tensor"], given: argparse.Namespace
) -> int:
    """Show the answers of a stream when they come; with --json a line each."""
    inputs = {one.name: one for one in tensors}
    began_s = time.perf_counter()
    for result in client.stream(model, inputs, **_options(given)):
        seconds = [time.perf_counter() - began_s]
        found = [result.tensor(name) for name in result]
        if given.json:
            _write_json(result, found, seconds)
        else:
            _write_text(result, found, seconds)
        # Each answer is to be seen when it comes, also through a pipe.
        sys.stdout.flush()
    return 0


def _options(given: argparse.Namespace) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    options = {
        "version": given.version,
        "classification": given.classes,
        "parameters": parameters,
    }
    if given.outputs:
        options["outputs"] = [name.strip() for name in given.outputs.split(",")]
    for word in given.parameter:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidRequest(f"--parameter {word} is not NAME=VALUE")
        try:
            parameters[name] = json.loads(text)
        # What is no JSON is a text, so that quotes need not be quoted for the shell.
        except (ValueError, RecursionError):
            parameters[name] = text
    return options


def _write_text(result: "InferResult", tensors: list["Tensor"], seconds: list[float]) -> None:
    from inferd.values.output import tensor_text

    version = f", version {result.model_version}" if result.model_version else ""
    sys.stdout.write(f"{result.model_name}{version}, {seconds[0] * 1e3:.3g} ms\n")
    for one in tensors:
        sys.stdout.write(tensor_text(one, columns() or 96))
    for name, value in result.parameters.items():
        sys.stdout.write(f"parameter {name}: {value}\n")
    if len(seconds) > 1:
        sys.stdout.write(repeat_text(seconds))


def repeat_text(seconds: Sequence[float]) -> str:
    """Return a line about how long requests, one after the other, have taken."""
    ordered = sorted(one * 1e3 for one in seconds)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return (
        f"{len(ordered)} times: median {statistics.median(ordered):.3g} ms, from {ordered[0]:.3g} "
        f"to {ordered[-1]:.3g}, p95 {late:.3g}, first {seconds[0] * 1e3:.3g}\n"
    )


def _write_json(result: "InferResult", tensors: list["Tensor"], seconds: list[float]) -> None:
    from inferd.values.output import json_document

    document: dict[str, object] = {
        "model": result.model_name,
        "version": result.model_version,
        "ms": [round(one * 1e3, 4) for one in seconds],
        "outputs": json_document(tensors),
    }
    if result.parameters:
        document["parameters"] = result.parameters
    # For people's eyes; the terminal says which encoding it has.
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
