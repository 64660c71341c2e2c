"""V2 over gRPC by plain rules: message bytes in, message bytes out."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from conformance.old import SERVICE as OLD_SERVICE
from conformance.reference import repository, rest, settings
from conformance.reference.classes import check_classes, classified
from conformance.reference.models import SIZES, Refused, Server, Tensor
from conformance.reference.values import encode_element, encode_elements
from conformance.rpc import FIELDS, SERVICE
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

Code = grpc.StatusCode
EMPTY_FINAL = "triton_enable_empty_final_response"
KINDS = {
    "priority": ("uint64_param", "int64_param"),
    "timeout": ("int64_param",),
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    EMPTY_FINAL: ("bool_param",),
}
CODES = {
    "invalid": Code.INVALID_ARGUMENT,
    "not found": Code.NOT_FOUND,
    "unsupported": Code.UNIMPLEMENTED,
    "unavailable": Code.UNAVAILABLE,
}


class Service:
    """The unary rpcs."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def answer(self, method: str, data: bytes) -> Any:
        """Return the answer of one call, a message. Raises Refused and DecodeError."""
        return getattr(self, method)(getattr(pb, f"{method}Request").FromString(data))

    def ServerLive(self, _: Any) -> Any:  # noqa: N802
        return pb.ServerLiveResponse(live=True)

    def ServerReady(self, _: Any) -> Any:  # noqa: N802
        return pb.ServerReadyResponse(ready=self._server.ready)

    def ModelReady(self, request: Any) -> Any:  # noqa: N802
        try:
            self._server.find(request.name, request.version)
        except Refused:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    def RepositoryIndex(self, request: Any) -> Any:  # noqa: N802
        body = rest.to_json({"ready": request.ready})
        return pb.RepositoryIndexResponse(models=repository.index(self._server, body))

    def ModelConfig(self, request: Any) -> Any:  # noqa: N802
        found = repository.config(self._server, request.name, request.version)
        return json_format.ParseDict({"config": found}, pb.ModelConfigResponse())

    def ServerMetadata(self, _: Any) -> Any:  # noqa: N802
        return pb.ServerMetadataResponse(**rest.METADATA)

    def ModelMetadata(self, request: Any) -> Any:  # noqa: N802
        model, chosen = self._server.find(request.name, request.version)
        response = pb.ModelMetadataResponse(name=model.name, platform="onnx_onnxv1")
        response.versions.extend([chosen] if request.version else model.versions)
        for rows, specs in ((response.inputs, model.inputs), (response.outputs, model.outputs)):
            for name, (datatype, shape) in specs.items():
                rows.add(name=name, datatype=datatype).shape.extend(shape)
        return response

    def ModelStatistics(self, request: Any) -> Any:  # noqa: N802
        rows = self._server.statistics(request.name, request.version)
        return pb.ModelStatisticsResponse(model_stats=rows)

    def TraceSetting(self, request: Any) -> Any:  # noqa: N802
        wanted = {name: list(value.value) for name, value in request.settings.items()}
        response = pb.TraceSettingResponse()
        found = settings.trace_settings(self._server, request.model_name, wanted)
        for name, texts in found.items():
            response.settings[name].value.extend(texts)
        return response

    def LogSettings(self, request: Any) -> Any:  # noqa: N802
        change = {
            name: getattr(value, value.WhichOneof("parameter_choice"))
            for name, value in request.settings.items()
        }
        settings.change_log(self._server.log, change)
        response = pb.LogSettingsResponse()
        for name, value in self._server.log.items():
            setattr(response.settings[name], settings.FIELDS[type(value)], value)
        return response

    def stream(self, requests: Iterator[bytes]) -> Iterator[Any]:
        """Answer ModelStreamInfer, one request after the other."""
        for data in requests:
            request = pb.ModelInferRequest.FromString(data)
            try:
                yield from self._stream(request)
            except Refused as refused:
                answer = pb.ModelInferResponse(id=request.id)
                yield pb.ModelStreamInferResponse(error_message=refused.text, infer_response=answer)

    def _stream(self, request: Any) -> Iterator[Any]:
        """Answer one request of a stream."""
        model, _ = self._server.find(request.model_name, request.model_version)
        if not model.decoupled:
            response = self.ModelInfer(request)
            response.parameters["triton_final_response"].bool_param = True
            yield pb.ModelStreamInferResponse(infer_response=response)
            return
        read_plain(request)
        head = {"model_name": request.model_name, "id": request.id}
        for outputs in self._server.stream(
            request.model_name, request.model_version, list(read_inputs(request))
        ):
            response = pb.ModelInferResponse(**head)
            response.parameters["triton_final_response"].bool_param = False
            for tensor in outputs:
                response.outputs.add(name=tensor.name, datatype=tensor.datatype)
                response.raw_output_contents.append(tensor.raw)
            yield pb.ModelStreamInferResponse(infer_response=response)
        if request.parameters[EMPTY_FINAL].bool_param:
            response = pb.ModelInferResponse(**head)
            response.parameters["triton_final_response"].bool_param = True
            yield pb.ModelStreamInferResponse(infer_response=response)

    def ModelInfer(self, request: Any) -> Any:  # noqa: N802
        read_plain(request)
        model, _ = self._server.find(request.model_name, request.model_version)
        inputs = list(read_inputs(request))
        wanted = [output.name for output in request.outputs]
        top_k = read_classes(request)
        check_classes(model, top_k)
        chosen, outputs = self._server.infer(
            request.model_name, request.model_version, inputs, wanted, parameters_of(request)
        )
        response = pb.ModelInferResponse(
            model_name=request.model_name, model_version=chosen, id=request.id
        )
        for output in outputs:
            count = top_k.get(output.name)
            tensor = classified(model, output, count) if count else output
            response.outputs.add(name=tensor.name, datatype=tensor.datatype).shape.extend(
                tensor.shape
            )
            response.raw_output_contents.append(tensor.raw)
        return response


def parameters_of(request: Any) -> dict[str, Any]:
    """Return the parameters of a request as plain values."""
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in request.parameters.items()
        if value.WhichOneof("parameter_choice")
    }


def read_classes(request: Any) -> dict[str, int]:
    """Return how many classes of each requested output are wanted, where any are."""
    wanted = {}
    for output in request.outputs:
        if "classification" in output.parameters:
            wanted[output.name] = output.parameters["classification"].int64_param
            if wanted[output.name] < 1:
                msg = f"output '{output.name}': classification is no int64_param of 1 or more"
                raise Refused(msg)
    return wanted


def read_inputs(request: Any) -> Iterator[Tensor]:
    """Yield the inputs of a ModelInferRequest as wire bytes."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        msg = f"{len(raw)} raw contents for {len(request.inputs)} inputs"
        raise Refused(msg)
    for index, item in enumerate(request.inputs):
        datatype = "BYTES" if item.datatype == "STRING" else item.datatype
        if datatype not in SIZES:
            msg = f"input '{item.name}' has the unknown datatype '{datatype}'"
            raise Refused(msg)
        filled = [field.name for field, _ in item.contents.ListFields()]
        if raw and filled:
            msg = f"input '{item.name}' has contents beside raw ones"
            raise Refused(msg)
        if filled and filled != [FIELDS.get(datatype)]:
            msg = f"input '{item.name}' has its {datatype} in {filled}"
            raise Refused(msg)
        data = raw[index] if raw else typed(item.name, datatype, item.contents, filled)
        yield Tensor(item.name, datatype, list(item.shape), data)


def read_plain(request: Any) -> None:
    """Raise Refused for a parameter that is reserved, or of the wrong kind."""
    for name, value in request.parameters.items():
        kind = value.WhichOneof("parameter_choice")
        is_reserved = name.startswith("triton_") and name != EMPTY_FINAL
        if is_reserved or kind is None:
            msg = f"parameter '{name}' has no value, or is reserved"
            raise Refused(msg)
        is_negative = kind == "int64_param" and value.int64_param < 0 and name != "sequence_id"
        if name in KINDS and (kind not in KINDS[name] or is_negative):
            msg = f"parameter '{name}' is a {kind}"
            raise Refused(msg)


def typed(name: str, datatype: str, contents: Any, filled: list[str]) -> bytes:
    """Return typed contents as wire bytes."""
    data = list(getattr(contents, filled[0])) if filled else []
    if datatype == "BYTES":
        return b"".join(len(one).to_bytes(4, "little") + one for one in data)
    if datatype in ("FP32", "FP64"):
        return b"".join(encode_element(datatype, one) for one in data)
    return encode_elements(name, datatype, data)


def open_server(faulty: Any) -> tuple[grpc.Server, int]:
    """Listen; `faulty` answers the calls of the service."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            if details.method == "/grpc.health.v1.Health/Check":
                return grpc.unary_unary_rpc_method_handler(lambda *_: faulty.health())
            if details.method.endswith("/ServerReflectionInfo"):
                return grpc.stream_stream_rpc_method_handler(lambda *_: iter([faulty.reflect()]))
            _, service, method = details.method.split("/")
            if method == "ModelStreamInfer":
                return grpc.stream_stream_rpc_method_handler(faulty.stream)
            if service == OLD_SERVICE:
                if method == "StreamInfer":
                    return grpc.stream_stream_rpc_method_handler(
                        lambda requests, _: faulty.old_stream(requests)
                    )
                return grpc.unary_unary_rpc_method_handler(
                    lambda data, _: faulty.old_answer(method, data)
                )
            if service != SERVICE or not faulty.knows(method):
                return None
            return grpc.unary_unary_rpc_method_handler(
                lambda data, context: guarded(faulty, method, data, context)
            )

    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Handler()], options=limits)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def guarded(faulty: Any, method: str, data: bytes, context: grpc.ServicerContext) -> bytes:
    """Answer one call, refusals as statuses."""
    try:
        answer: bytes = faulty.answer(method, data)
    except Refused as refused:
        context.abort(CODES.get(refused.reason, Code.UNKNOWN), refused.text)
    except DecodeError:
        context.abort(Code.INTERNAL, "the message cannot be read")
    return answer
