"""What commands send to a model: what `inferd bench` does, and inputs drawn at random."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.bench.plan import Plan
    from inferd.bench.requests import WantedRequest
    from inferd.client import Client
    from inferd.client.settings import ClientSettings
    from inferd.core.metadata import ModelMetadata
    from inferd.tensor.tensor import Tensor


class Prepared(NamedTuple):
    """What is sent to whom: the plan, words for the result, and when recorded requests came."""

    plan: "Plan"
    url: str
    server: str
    request: str
    times_s: Sequence[float]


@contextmanager
def prepared(
    client: "Client", settings: "ClientSettings", most: int, given: argparse.Namespace
) -> Iterator[Prepared]:
    """Yield what is sent, after one request was answered; `most` may be under way at a time.

    Raises InferdError.
    """
    from inferd.bench.requests import WantedRequest, plan_of
    from inferd.bench.shared import MOST_PLACES, placed_inputs, places_in, size_of
    from inferd.client.errors import ServerError

    metadata = client.metadata(given.model, given.version)
    try:
        about = client.server_metadata()
        server = f"{about.name} {about.version}".strip()
        has_binary = "binary_tensor_data" in about.extensions
    except ServerError:
        # A server that does not say what it is may still be one; the first request tells.
        server, has_binary = "unknown server", True
    inputs, times_s = _inputs(client, metadata, given)
    target = settings.target
    is_decoupled = is_decoupled_model(client, given.model, given.version)
    if is_decoupled and not given.stream:
        raise InvalidConfig(f"{given.model} gives any number of answers to a request: add --stream")
    wanted = WantedRequest(
        given.model,
        given.version,
        tuple(one.strip() for one in given.outputs.split(",") if one.strip()),
        # Over REST, streams are answered as JSON in events (Generate extension).
        binary=target.is_grpc or (has_binary and not given.text and not given.stream),
        stream=given.stream,
        has_one_answer=not is_decoupled,
        sequence_length=given.sequence_length,
    )
    # Before the load: a request that is refused is told once, not thousands of times.
    sizes = _answer_sizes(client, inputs[0], wanted)
    files = {name: getattr(given, name) or "" for name in ("ca_file", "cert_file", "key_file")}
    words = _words(inputs, wanted, is_grpc=target.is_grpc)
    if not given.shared_memory:
        plan = plan_of(settings, inputs, wanted, tls_files=files)
        yield Prepared(plan, client.url, server, words, times_s)
        return
    # More requests at a time share places: nobody reads the answers.
    places = min(most, MOST_PLACES)
    with client.shared_memory(size_of(inputs, sizes, places)) as memory:
        placed = placed_inputs(memory, inputs)
        plan = plan_of(settings, placed, wanted, places_in(memory, sizes, places), files)
        yield Prepared(plan, client.url, server, f"{words}, in shared memory", times_s)


def _answer_sizes(
    client: "Client", inputs: Sequence["Tensor"], wanted: "WantedRequest"
) -> dict[str, int]:
    """Send one request, and return the sizes of the outputs in bytes, with room for longer strings.

    Requests of streams and sequences, of which one alone says nothing, are not sent.
    """
    from inferd.tensor.dtype import DataType

    if wanted.stream or wanted.sequence_length:
        return {}
    options: dict[str, Any] = {"version": wanted.version}
    if wanted.outputs:
        options["outputs"] = list(wanted.outputs)
    result = client.infer(wanted.model, {one.name: one for one in inputs}, **options)
    found = {}
    for name in result:
        tensor = result.tensor(name)
        # Strings of another answer may be longer.
        spare = tensor.size_bytes + 4096 if tensor.datatype is DataType.BYTES else 0
        found[name] = max(1, tensor.size_bytes + spare)
    return found


def _inputs(
    client: "Client", metadata: Any, given: argparse.Namespace
) -> tuple[list[list["Tensor"]], list[float]]:
    from inferd.values.drawn import drawn, read_shapes
    from inferd.values.fitting import fitted
    from inferd.values.source import read_inputs

    if given.requests:
        from inferd.bench.recorded import read_requests

        if given.input:
            raise InvalidConfig("--requests and --input both say what is sent: give one")
        return read_requests(given.requests, metadata.inputs, given.model)
    if given.input:
        found = fitted(read_inputs(given.input), metadata.inputs)
        for note in found.notes:
            sys.stderr.write(f"{note}\n")
        return [found.tensors], []
    import numpy as np

    from inferd.bench.recorded import MOST_REQUESTS

    if given.varied > MOST_REQUESTS:
        raise InvalidConfig(f"--varied {given.varied} are more than {MOST_REQUESTS} requests")
    random = np.random.default_rng(given.seed)
    shapes = read_shapes(given.shape)
    is_batched = is_batched_model(client, given.model, given.version)
    if given.batch > 1 and not is_batched:
        raise InvalidConfig(f"{given.model} takes no batches (max_batch_size): leave --batch away")
    return [
        drawn(metadata.inputs, random, shapes, given.batch, is_batched=is_batched)
        for _ in range(given.varied)
    ], []


def _words(inputs: Sequence[Sequence["Tensor"]], wanted: "WantedRequest", *, is_grpc: bool) -> str:
    from inferd.tensor.tensor import dims_text

    shown = ", ".join(
        f"{one.name} {one.datatype.value} {dims_text(one.shape)}" for one in inputs[0][:4]
    )
    more = f" and {len(inputs[0]) - 4} more" if len(inputs[0]) > 4 else ""
    how = "gRPC" if is_grpc else "REST binary" if wanted.binary else "REST JSON"
    how += ", streams" if wanted.stream else ""
    count = f", {len(inputs)} different requests" if len(inputs) > 1 else ""
    length = wanted.sequence_length
    return f"{how}: {shown}{more}{count}{f', sequences of {length}' if length else ''}"


def drawn_inputs(
    client: "Client", metadata: "ModelMetadata", version: str, shapes: Sequence[str]
) -> list["Tensor"]:
    """Return inputs of a model, drawn at random; `shapes` are the texts of --shape."""
    import numpy as np

    from inferd.values.drawn import drawn, read_shapes

    is_batched = is_batched_model(client, metadata.name, version)
    # The same numbers each time: two runs can be compared.
    random = np.random.default_rng(0)
    return drawn(metadata.inputs, random, read_shapes(shapes), is_batched=is_batched)


def is_batched_model(client: "Client", model: str, version: str) -> bool:
    """Return whether the first dim of a model's inputs is a batch, as its configuration says."""
    return int(_config(client, model, version).get("max_batch_size", 0)) > 0


def is_decoupled_model(client: "Client", model: str, version: str) -> bool:
    """Return whether a model gives any number of answers, as its configuration says."""
    policy = _config(client, model, version).get("model_transaction_policy") or {}
    return bool(policy.get("decoupled"))


def _config(client: "Client", model: str, version: str) -> dict[str, Any]:
    """Return the configuration; of a server without this extension an empty one."""
    from inferd.client.errors import BadAnswer, ServerError

    try:
        return client.config(model, version)
    except (BadAnswer, ServerError):
        return {}
