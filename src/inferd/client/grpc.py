"""GrpcCalls: the calls of V2 over gRPC, and what their answers mean; no input or output."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from inferd.client.call import ClientCall, ServerAnswer
from inferd.client.errors import BadAnswer, ClientError, DeadlineExceeded, server_error
from inferd.client.failures import not_sendable, sendable
from inferd.client.regions import Registration
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelMetadata, ModelState, ServerMetadata
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Code, InvalidRequest
from inferd.memory.buffer import Buffer
from inferd.observe.statistics import ModelStatistics
from inferd.wire.json.document import JsonObject
from inferd.wire.proto import encode, parse_answer
from inferd.wire.proto.fields import read_field
from inferd.wire.shared_memory import SystemRegistration, places_of
from inferd.wire.v2.grpc import metadata as messages
from inferd.wire.v2.grpc.codec import decode_infer_response, encode_infer_request
from inferd.wire.v2.grpc.parameters import decode_parameter
from inferd.wire.v2.grpc.shared_memory import encode_region_name, encode_registration
from inferd.wire.v2.repository import encode_load_message, encode_unload_message
from inferd.wire.v2.statistics import decode_statistics_message, encode_statistics_request

T = TypeVar("T")

_SERVICE: Final = "/inference.GRPCInferenceService/"

_NAMES = (
    # By their numbers, 0 to 16 (gRPC, Status codes and their use in gRPC).
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""The status codes of gRPC by number."""

_CODES = {
    "CANCELLED": Code.CANCELLED,
    "UNKNOWN": Code.UNKNOWN,
    "INVALID_ARGUMENT": Code.INVALID_ARG,
    "FAILED_PRECONDITION": Code.INVALID_ARG,
    "OUT_OF_RANGE": Code.INVALID_ARG,
    "NOT_FOUND": Code.NOT_FOUND,
    "ALREADY_EXISTS": Code.ALREADY_EXISTS,
    "PERMISSION_DENIED": Code.FORBIDDEN,
    # Servers mean a message beyond their limit by it, ours included; `refusal` has the exception.
    "RESOURCE_EXHAUSTED": Code.TOO_LARGE,
    "UNIMPLEMENTED": Code.UNSUPPORTED,
    "UNAVAILABLE": Code.UNAVAILABLE,
    "UNAUTHENTICATED": Code.UNAUTHENTICATED,
}
"""What they mean; the others are INTERNAL."""


class GrpcCalls:
    """Makes calls. `refusal` says which answers are errors."""

    def live(self) -> ClientCall[bool]:
        """Whether the server is live."""
        return _call("ServerLive", b"", messages.decode_live, is_health=True)

    def ready(self) -> ClientCall[bool]:
        """Whether the server is ready."""
        decode = partial(messages.decode_ready, "ServerReady")
        return _call("ServerReady", b"", decode, is_health=True)

    @sendable()
    def model_ready(self, model: str, version: str) -> ClientCall[bool]:
        """Whether a model is ready."""
        message = messages.encode_model_request("ModelReady", model, version)
        decode = partial(messages.decode_ready, "ModelReady")
        return _call("ModelReady", message, decode, is_health=True)

    def server_metadata(self) -> ClientCall[ServerMetadata]:
        """Name, version and extensions of the server."""
        return _call("ServerMetadata", b"", messages.decode_server_metadata)

    @sendable()
    def metadata(self, model: str, version: str) -> ClientCall[ModelMetadata]:
        """Inputs and outputs of a model."""
        message = messages.encode_model_request("ModelMetadata", model, version)
        return _call("ModelMetadata", message, messages.decode_model_metadata)

    @sendable()
    def config(self, model: str, version: str) -> ClientCall[JsonObject]:
        """The configuration of a model."""
        message = encode("inference.ModelConfigRequest", name=model, version=version)
        return _call("ModelConfig", message, _read_config)

    @sendable()
    def statistics(self, model: str, version: str) -> ClientCall[list[ModelStatistics]]:
        """The statistics of a model, or of all."""
        message = encode_statistics_request(model, version)
        return _call("ModelStatistics", message, decode_statistics_message)

    def index(self, *, ready: bool) -> ClientCall[list[IndexEntry]]:
        """The models of the repository."""
        message = encode("inference.RepositoryIndexRequest", ready=ready)
        return _call("RepositoryIndex", message, _read_index)

    @sendable()
    def load(self, load: LoadRequest) -> ClientCall[None]:
        """Load a model."""
        message = encode_load_message(load)
        return _call("RepositoryModelLoad", message, _read_nothing, is_safe=False)

    @sendable()
    def unload(self, unload: UnloadRequest) -> ClientCall[None]:
        """Unload a model."""
        message = encode_unload_message(unload)
        return _call("RepositoryModelUnload", message, _read_nothing, is_safe=False)

    @sendable()
    def trace_settings(
        self, model: str, changes: Mapping[str, object] | None
    ) -> ClientCall[JsonObject]:
        """Trace settings, of all models or of one, after `changes`."""
        rows = {name: {"value": _texts(value)} for name, value in (changes or {}).items()}
        message = encode("inference.TraceSettingRequest", model_name=model, settings=rows)
        return _call("TraceSetting", message, _read_trace_settings)

    def log_settings(self, changes: Mapping[str, object] | None) -> ClientCall[JsonObject]:
        """Log settings, after `changes`. Raises InvalidRequest."""
        rows = {name: {_log_choice(name, value): value} for name, value in (changes or {}).items()}
        try:
            message = encode("inference.LogSettingsRequest", settings=rows)
        except ValueError as error:
            raise InvalidRequest(f"the settings cannot be sent: {error}") from None
        return _call("LogSettings", message, _read_log_settings)

    def register(self, region: Registration) -> ClientCall[None]:
        """Make a region of system shared memory known."""
        registration = SystemRegistration(region.name, region.key, 0, region.size_bytes)
        message = encode_registration("System", registration)
        return _call("SystemSharedMemoryRegister", message, _read_nothing, is_safe=False)

    def unregister(self, name: str) -> ClientCall[None]:
        """Forget a region."""
        message = encode_region_name("SystemSharedMemoryUnregister", name)
        return _call("SystemSharedMemoryUnregister", message, _read_nothing, is_safe=False)

    def infer(self, request: InferRequest, *, binary: bool) -> ClientCall[InferResponse]:
        """One inference. Raises InvalidRequest for what a message cannot hold."""
        places = places_of(request)
        return ClientCall(
            _SERVICE + "ModelInfer",
            lambda answer: decode_infer_response(answer.body, places),
            _encoded(request),
            is_safe=False,
        )

    def stream(self, request: InferRequest, *, binary: bool) -> ClientCall[InferResponse]:
        """An inference with any number of answers, each of which is a message."""
        path = _SERVICE + "ModelStreamInfer"
        return ClientCall(path, _no_answer, _encoded(request), is_safe=False)

    def open_stream(self) -> ClientCall[InferResponse]:
        """A stream of any number of requests, which follow."""
        return ClientCall(_SERVICE + "ModelStreamInfer", _no_answer, is_safe=False)

    def read_message(self, message: memoryview) -> InferResponse:
        """Return one of the answers of a stream. Raises ServerError, BadAnswer."""
        error, inner = _stream_answer(message)
        if error:
            msg = "UNKNOWN"
            # ModelStreamInferResponse has a text for an error, and no status.
            raise server_error(msg, error, Code.UNKNOWN, {})
        return decode_infer_response(message if inner is None else inner)

    def refusal(self, answer: ServerAnswer) -> ClientError | None:
        """Return the error that `answer` is, None for a good one."""
        # OK is 0, and the case of nearly all answers.
        if not answer.status:
            return None
        name = _NAMES[answer.status] if answer.status < len(_NAMES) else str(answer.status)
        # grpc-message is percent-encoded (gRPC over HTTP/2, Responses).
        text = unquote(answer.headers.get("grpc-message", ""))
        if name == "DEADLINE_EXCEEDED":
            return DeadlineExceeded(f"the server gave the call up: {text or 'its time is over'}")
        code = _CODES.get(name, Code.INTERNAL)
        pushback = answer.headers.get("grpc-retry-pushback-ms")
        retry_s = None
        if pushback is not None:  # anything but a number means never (gRPC A6)
            # int() of a long text would be slow, and above 4300 digits a ValueError.
            retry_s = int(pushback) / 1000 if pushback.isdigit() and len(pushback) < 12 else -1.0
        # With a time to come back it means "busy", not "too large".
        if name == "RESOURCE_EXHAUSTED" and retry_s is not None:
            code = Code.UNAVAILABLE
        error = server_error(name, text, code, answer.headers, retry_s)
        # UNAVAILABLE is said before a call is executed, so it is safe to send it again.
        error.is_untaken = code is Code.UNAVAILABLE
        return error


def _encoded(request: InferRequest) -> list[Buffer]:
    try:
        return encode_infer_request(request)
    # Before ValueError, of which it is one.
    except UnicodeEncodeError as error:
        raise not_sendable(error) from None
    # protobuf's, for a parameter that is no text, no number and no boolean, or out of range.
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a parameter cannot be sent: {error}") from error


def _call(
    rpc: str,
    message: bytes,
    decode: Callable[[bytes], T],
    *,
    is_safe: bool = True,
    is_health: bool = False,
) -> ClientCall[T]:
    return ClientCall(
        _SERVICE + rpc,
        lambda answer: decode(bytes(answer.body)),
        [message] if message else [],
        is_safe=is_safe,
        is_health=is_health,
    )


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    # trace_level is a list in REST's JSON, so it may be one here.
    if isinstance(value, Iterable):
        return [str(one) for one in value]
    return [str(value)]


def _log_choice(name: str, value: Any) -> str:
    kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    try:
        # Not isinstance: True is an int as well, and the oneof has a bool of its own.
        return kinds[type(value)]
    except KeyError:
        msg = f"the setting {name} is {value!r}, expected a text, a whole number, true or false"
        raise InvalidRequest(msg) from None


def _read_nothing(_message: bytes) -> None:
    return None


def _no_answer(_answer: ServerAnswer) -> InferResponse:
    raise BadAnswer("a stream has no answer beside its messages")


def _read_index(message: bytes) -> list[IndexEntry]:
    rows = parse_answer("inference.RepositoryIndexResponse", message).models
    return [IndexEntry(row.name, row.version, _state(row.state), row.reason) for row in rows]


def _state(text: str) -> ModelState | None:
    try:
        return ModelState(text) if text else None
    # A state that a later server has is no reason to fail.
    except ValueError:
        # Not the same as None: a server that gives no state at all.
        return ModelState.UNKNOWN


def _read_config(message: bytes) -> JsonObject:
    config = parse_answer("inference.ModelConfigResponse", message).config
    found: JsonObject = _plain(config)
    return found


def _plain(message: Any) -> Any:
    """Return a message as JSON has it, its default values included."""
    if not hasattr(message, "DESCRIPTOR"):
        return message
    members: JsonObject = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        # A map is a repeated message of key and value on the wire; JSON has an object.
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            members[field.name] = {str(key): _plain(one) for key, one in value.items()}
        elif field.is_repeated:
            members[field.name] = [_named(field, one) for one in value]
        # Triton writes scalars with their defaults, and leaves out messages and oneofs that are not
        # set.
        elif field.has_presence and not message.HasField(field.name):
            continue
        else:
            members[field.name] = _named(field, value)
    return members


def _named(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        # A later server may have added a value (open enums of proto3).
        return known.name if known is not None else value
    return _plain(value)


def _read_trace_settings(message: bytes) -> JsonObject:
    rows = parse_answer("inference.TraceSettingResponse", message).settings
    # The one setting that has several values in REST.
    many = ("trace_level",)
    return {
        name: list(row.value) if name in many else next(iter(row.value), "")
        for name, row in rows.items()
    }


def _read_log_settings(message: bytes) -> JsonObject:
    rows = parse_answer("inference.LogSettingsResponse", message).settings
    return {name: decode_parameter(row) for name, row in rows.items()}


def _stream_answer(message: memoryview) -> tuple[str, memoryview | None]:
    """Return the error, or the answer, that a message of ModelStreamInfer has.

    Return ("", None) for a ModelInferResponse by itself, as MLServer sends.
    """
    error, inner, at = "", None, 0
    while at < len(message):
        field = read_field(message, at)
        # Fields 1 and 2, both of wire type 2. A bare ModelInferResponse begins with the same tags,
        # its model's name and version, and goes on with others.
        if field is None or field.tag not in (0x0A, 0x12):
            return "", None
        if field.tag == 0x0A:
            error = bytes(field.value).decode(errors="replace")
        else:
            inner = field.value
        at = field.end
    return error, inner
