"""V2's model repository extension: index, load and unload, over REST and gRPC, both sides.

A load may carry whole model files: base64 in JSON, bytes in a message. In JSON each value stays
raw text until it is decoded, piece by piece; in a message large files are cut out as views, not
copied.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import orjson

from inferd.aio.inline import groups
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError, InvalidRequest, Unsupported
from inferd.memory.buffer import Buffer
from inferd.wire.json.kinds import not_a
from inferd.wire.proto import encode, parse
from inferd.wire.proto.fields import encode_field, read_field

MAX_FILES = 1000
"""The most parameters of one load: files, and a configuration."""

MAX_SMALL_BYTES = 65536
"""The longest JSON body of the calls that carry no files."""

_FILE = "file:"
_MAX_QUOTES = 1 << 20  # enough for a configuration inside JSON; 64 MiB of keys would have more
_PIECE = 1 << 20  # characters of base64 that are decoded in one call, a multiple of 4
_NOT_READABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_CUT_BYTES = 65536  # files from this size on are cut out of a message


def decode_index_request(body: memoryview, _repository: str = "") -> bool:
    """Return whether the request asks for ready models only; an empty body asks for all.

    The name of the repository is ignored, as in Triton. Raises InvalidRequest.
    """
    ready = _small_object(body).get("ready")
    if ready is not None and type(ready) is not bool:
        msg = f"{not_a('boolean')}: 'ready' is {_shown(ready)}, expected true or false"
        raise InvalidRequest(msg)
    return bool(ready)


def encode_index(rows: Iterable[IndexEntry]) -> Iterator[bytes]:
    """Yield $repository_index_response in pieces: an array whose rows omit unknown fields.

    Each row of a version has a reason, "" if there is none.
    """
    yield b"["
    separator = b""
    for group in groups(rows):
        yield separator + orjson.dumps([_index_row(row) for row in group])[1:-1]
        separator = b","
    yield b"]"


def decode_index_message(data: bytes) -> bool:
    """Return whether a RepositoryIndexRequest asks for ready models only.

    Raises InvalidRequest, Unsupported for a named repository.
    """
    message = parse("inference.RepositoryIndexRequest", data)
    if message.repository_name:
        raise one_repository()
    return bool(message.ready)


def encode_index_message(rows: Iterable[IndexEntry]) -> Iterator[bytes]:
    """Yield a RepositoryIndexResponse in pieces: messages one after the other are one."""
    for group in groups(rows):
        yield encode("inference.RepositoryIndexResponse", models=map(_index_row, group))


def decode_index(body: bytes) -> list[IndexEntry]:
    """Return the rows of an index in JSON. Raises InferdError when it is malformed."""
    try:
        rows = msgspec.json.decode(body, type=list[_IndexRow])
    except _NOT_READABLE as error:
        raise InferdError(f"the server's answer is malformed: {error}") from error
    return [
        IndexEntry(row.name, row.version, ModelState(row.state) if row.state else None, row.reason)
        for row in rows
    ]


class _IndexRow(msgspec.Struct):
    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


def _index_row(row: IndexEntry) -> dict[str, str]:
    members = {"name": _text(row.name)}
    if row.version:
        members["version"] = row.version
    if row.state is not None:
        members["state"] = row.state.value
    if row.reason or row.version:  # MLServer's clients require it even if there is no reason
        members["reason"] = _text(row.reason)
    return members


def _text(text: str) -> str:
    """Return `text` with lone surrogates replaced, which neither JSON nor a message can carry."""
    return text.encode(errors="replace").decode()


def decode_load_request(max_bytes: int, body: memoryview, model: str) -> LoadRequest:
    """Return the load that `body` asks for: up to `max_bytes` of JSON, or nothing.

    It may take a second, so call it in a thread. Raises InvalidRequest.
    """
    if len(body) > max_bytes:
        raise InvalidRequest(
            f"the load has {len(body)} bytes of JSON, the limit is {max_bytes}; send files over "
            f"gRPC, or put them into the repository"
        )

    def config(key: str, value: msgspec.Raw) -> str:
        return _raw_text(key, value, "a string that holds JSON")

    return _load(model, _raw_parameters(body), config, _unpacked)


def encode_load_request(load: LoadRequest) -> bytes:
    """Return the JSON body of `load`."""
    parameters = {
        _FILE + path: base64.b64encode(content).decode() for path, content in load.files.items()
    }
    if load.config is not None:
        parameters["config"] = load.config
    return orjson.dumps({"parameters": parameters})


def encode_loaded(model: str) -> bytes:
    """Return the answer to a load; Triton's is empty, KServe's client reads this one."""
    return orjson.dumps({"name": model, "load": True})


def decode_unload_request(body: memoryview, model: str) -> UnloadRequest:
    """Return the unload that `body` asks for: JSON, or nothing. Raises InvalidRequest."""
    parameters = _small_object(body).get("parameters")
    if parameters is None:
        return UnloadRequest(model)
    if not isinstance(parameters, dict):
        raise InvalidRequest(f"'parameters' is {_shown(parameters)}, expected an object")
    dependents = parameters.get("unload_dependents")
    if dependents is not None and type(dependents) is not bool:
        raise InvalidRequest(
            f"{not_a('boolean')}: parameter 'unload_dependents' is {_shown(dependents)}, expected "
            f"true or false"
        )
    return UnloadRequest(model, bool(dependents))


def encode_unload_request(unload: UnloadRequest) -> bytes:
    """Return the JSON body of `unload`."""
    return orjson.dumps({"parameters": {"unload_dependents": unload.unload_dependents}})


def encode_unloaded(model: str) -> bytes:
    """Return the answer to an unload, like `encode_loaded`."""
    return orjson.dumps({"name": model, "unload": True})


def _load(
    model: str,
    parameters: Mapping[str, object],
    read_config: Callable[[str, Any], str],
    read_file: Callable[[str, Any], bytes | memoryview],
) -> LoadRequest:
    config = None
    files: dict[str, bytes | memoryview] = {}
    for key, value in parameters.items():
        if key == "config":
            config = read_config(key, value)
        elif key.startswith(_FILE):
            files[key.removeprefix(_FILE)] = read_file(key, value)
        else:
            raise _unknown_parameter(key)
    return LoadRequest(model, config, files)


class _LoadBody(msgspec.Struct):
    parameters: dict[str, msgspec.Raw] | None = None


def _raw_parameters(body: memoryview) -> dict[str, msgspec.Raw]:
    if not len(body):
        # A load without a body takes the model as it is in the repository.
        return {}
    # Every key costs many times its own size, so their number is bounded before they are decoded.
    quotes = sum(bytes(body[at : at + _PIECE]).count(b'"') for at in range(0, len(body), _PIECE))
    try:
        parameters = msgspec.json.decode(body, type=_LoadBody).parameters or {}
    except _NOT_READABLE as error:
        msg = f"the body is no load request, a JSON object with 'parameters': {error}"
        if not isinstance(error, msgspec.ValidationError):
            msg = f"failed to parse the request JSON buffer: {msg}"
        raise InvalidRequest(msg) from error
    # Raised only now, so that a body that is no JSON at all is called that.
    if quotes > _MAX_QUOTES or len(parameters) > MAX_FILES:
        raise _too_many()
    return parameters


def _raw_text(key: str, value: msgspec.Raw, expected: str) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except _NOT_READABLE:
        shown = bytes(memoryview(value)[:_SHOWN]).decode(errors="replace")
        msg = f"parameter '{key}' is {shown}, expected {expected}"
        if not shown.startswith('"'):
            msg = f"{not_a('string')}: {msg}"
        raise InvalidRequest(msg) from None


def _unpacked(key: str, value: msgspec.Raw) -> bytes:
    text = _raw_text(key, value, "a string of base64")
    text = text.replace("\n", "").replace("\r", "")  # many programs break it into lines
    try:
        # Python's decoder stops at padding in the middle and takes what came before.
        if 0 <= text.find("=") < len(text) - 2:
            raise ValueError("padding before the end")
        if len(text) % 4:  # before 3.13 Python accepts some of these
            raise ValueError(f"it has {len(text)} characters, expected a multiple of 4")
        # In pieces, so that no single call holds the GIL for long.
        return b"".join(
            binascii.a2b_base64(text[at : at + _PIECE], strict_mode=True)
            for at in range(0, len(text), _PIECE)
        )
    except ValueError as error:  # binascii.Error, or a character beyond ASCII
        raise InvalidRequest(f"parameter '{key}' is not base64: {error}") from error


def _small_object(body: memoryview) -> dict[str, object]:
    if len(body) > MAX_SMALL_BYTES:
        raise InvalidRequest(f"the body has {len(body)} bytes, the limit is {MAX_SMALL_BYTES}")
    if not len(body):
        return {}
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(document, dict):
        raise InvalidRequest(f"the body is {_shown(document)}, expected a JSON object")
    return document


_PARAMETERS_TAG = b"\x1a"
_NAME_TAG = b"\x0a"
_IS_DONE = b"\x10\x01"


def decode_load_message(data: Buffer) -> LoadRequest:
    """Return the load that a RepositoryModelLoadRequest, Triton's or KServe's, asks for.

    Large files are views into `data`. Raises InvalidRequest, Unsupported for a named repository.
    """
    rest, large = _split(data)
    message = parse("inference.RepositoryModelLoadRequest", rest)

    def chosen(choice: str) -> Callable[[str, Any], Any]:
        return lambda key, parameter: _chosen(f"load parameter '{key}'", parameter, choice)

    # As Triton's clients send them.
    load = _load("", message.parameters, chosen("string_param"), chosen("bytes_param"))
    return LoadRequest(_model_name(message), load.config, {**load.files, **large})


def encode_load_message(load: LoadRequest) -> bytes:
    """Return a RepositoryModelLoadRequest."""
    parameters: dict[str, dict[str, object]] = {
        _FILE + path: {"bytes_param": bytes(content)} for path, content in load.files.items()
    }
    if load.config is not None:
        parameters["config"] = {"string_param": load.config}
    name = "inference.RepositoryModelLoadRequest"
    return encode(name, model_name=load.model, parameters=parameters)


def decode_unload_message(data: bytes) -> UnloadRequest:
    """Return the unload that a RepositoryModelUnloadRequest asks for. Raises as for a load."""
    message = parse("inference.RepositoryModelUnloadRequest", data)
    dependents = False
    if (key := "unload_dependents") in message.parameters:
        dependents = _chosen(f"'{key}' parameter", message.parameters[key], "bool_param")
    return UnloadRequest(_model_name(message), dependents)


def encode_unload_message(unload: UnloadRequest) -> bytes:
    """Return a RepositoryModelUnloadRequest."""
    parameters = {"unload_dependents": {"bool_param": unload.unload_dependents}}
    name = "inference.RepositoryModelUnloadRequest"
    return encode(name, model_name=unload.model, parameters=parameters)


def encode_done(model: str) -> bytes:
    """Return the answer to a load or unload: KServe's fields, which Triton's clients ignore."""
    return encode_field(_NAME_TAG, _text(model).encode()) + _IS_DONE


def _split(data: Buffer) -> tuple[bytes, dict[str, memoryview]]:
    """Split a RepositoryModelLoadRequest into the large files, by path, and the rest.

    A parser would copy the files twice, and hold up all other connections meanwhile.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    files: dict[str, memoryview] = {}
    at = count = 0
    while at < len(view):
        field = read_field(view, at)
        if field is None:
            return bytes(view), {}  # the parser will say what is wrong with it
        if field.tag == _PARAMETERS_TAG[0]:
            count += 1
            if count > MAX_FILES:
                raise _too_many()
        entry = _large_file(field.value) if field.tag == _PARAMETERS_TAG[0] else None
        if entry is None:
            rest.append(view[at : field.end])
        else:
            files[entry[0]] = entry[1]
        at = field.end
    return b"".join(rest), files


def _large_file(entry: memoryview) -> tuple[str, memoryview] | None:
    """Return path and content of a large file's map entry in the usual layout, None otherwise."""
    if len(entry) < _CUT_BYTES:
        return None
    key = read_field(entry, 0)
    value = read_field(entry, key.end) if key else None
    # key = 1 and value = 2, as every serializer writes a map's entry; other orders go to the
    # parser.
    if not key or not value or (key.tag, value.tag, value.end) != (0x0A, 0x12, len(entry)):
        return None
    content = read_field(value.value, 0)
    if content is None or (content.tag, content.end) != (0x22, len(value.value)):
        return None
    name = bytes(key.value).decode(errors="replace")
    return (name.removeprefix(_FILE), content.value) if name.startswith(_FILE) else None


def _model_name(message: Any) -> str:
    """Return the model's name, which KServe puts in Triton's field repository_name."""
    if message.model_name and message.repository_name:
        raise one_repository()
    name: str = message.model_name or message.repository_name
    return name


def _chosen(what: str, parameter: Any, expected: str) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    if choice != expected:
        msg = f"invalid value type for {what}, expected {expected}: it is {choice or 'not set'}"
        raise InvalidRequest(msg)
    return getattr(parameter, expected)


_SHOWN = 200


def _shown(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def one_repository() -> Unsupported:
    """Return the error for a call that names a repository."""
    return Unsupported(
        "'repository_name' specification is not supported, "
        "this server knows models by their name alone"
    )


def _unknown_parameter(key: str) -> InvalidRequest:
    return InvalidRequest(
        f"unrecognized load parameter '{key[:_SHOWN]}', expected 'config' or 'file:VERSION/PATH'"
    )


def _too_many() -> InvalidRequest:
    return InvalidRequest(f"a load may have at most {MAX_FILES} parameters")
