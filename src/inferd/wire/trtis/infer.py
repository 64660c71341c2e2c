"""Inference in the TensorRT Inference Server API, over either protocol.

An InferRequestHeader says less than a V2 request: no datatypes, and shapes without the batch dim or
none at all. The rest is in the model's configuration, which a `Form` knows. Clients from
before 0.11 ("old" here) give the size of one item instead of dims, and are answered likewise.
"""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from inferd.aio.inline import INLINE_ELEMENTS, INLINE_STRINGS, NotFast
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse, Resolve, Sequence, Span, WantedOutput
from inferd.errors import BackendFailed, Code, InferdError, InvalidRequest, ModelNotFound
from inferd.tensor.classification import Labels, is_classifiable
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import check_strings
from inferd.tensor.tensor import Tensor, dims_text
from inferd.wire.shared_memory import placed_bytes, read_input, take_spans
from inferd.wire.template import Template
from inferd.wire.trtis.answer import Answer, Piece, head_piece, joined, raw_piece
from inferd.wire.trtis.classes import classes_piece
from inferd.wire.trtis.header import InferHeader, InputHeader, InputSource, OutputHeader

if TYPE_CHECKING:
    from inferd.memory.buffer import Buffer

STATUS = {
    Code.UNKNOWN: 2,
    Code.INTERNAL: 3,
    Code.NOT_FOUND: 4,
    Code.INVALID_ARG: 5,
    Code.UNAVAILABLE: 6,
    Code.UNSUPPORTED: 7,
    Code.ALREADY_EXISTS: 8,
    Code.CANCELLED: 2,  # the old API has no codes for these five
    Code.RESTRICTED: 6,
    Code.UNAUTHENTICATED: 6,
    Code.FORBIDDEN: 6,
    Code.TOO_LARGE: 5,
}
"""The RequestStatusCode of each reason."""

SUCCESS = 1
START, END = 1, 2
"""Bits of the header's flags."""

_MAX_SPAN = 2**60
"""The most elements of an array: numpy's sizes have 63 bits, with empty dims counted as 1."""

_MOST_TEMPLATES = 64
"""How many templates are remembered for each model."""


def status_of(error: Exception) -> tuple[int, str]:
    """Return the RequestStatusCode and the text that report `error` to a client.

    No details of unexpected errors are disclosed.
    """
    if not isinstance(error, InferdError):
        return STATUS[Code.INTERNAL], "the server failed unexpectedly; its log says why"
    # An unknown model is UNAVAILABLE since 0.9; NOT_FOUND is for shared memory.
    code = Code.UNAVAILABLE if isinstance(error, ModelNotFound) else error.code
    return STATUS[code], error.message


class _Rule:
    """How one input or output is configured; `item_bytes` is None if the size varies."""

    def __init__(self, declared: ModelInput | ModelOutput, bit: int) -> None:
        self.name = declared.name
        self.datatype = declared.datatype
        self.dims = declared.dims
        self.bit = bit
        self.is_text = declared.datatype is DataType.BYTES
        varies = -1 in declared.dims or self.is_text
        self.item_bytes = None if varies else prod(declared.dims) * declared.datatype.size_bytes

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Return whether the configuration allows `dims`."""
        return len(dims) == len(self.dims) and all(
            got >= 0 and want in (got, -1) for want, got in zip(self.dims, dims, strict=True)
        )


class _HeaderTemplate(Template):
    """The template of a header whose words have been seen before.

    `said` is the header of the latest answer; `answered` are the values it was made from.
    """

    def __init__(self, request: InferRequest) -> None:
        inputs = [Tensor(one.name, one.datatype, one.shape, b"") for one in request.inputs]
        pattern = InferRequest(request.model, "", "", inputs, request.outputs)
        pattern.batch_key = object()
        super().__init__(pattern, [len(one.data) for one in request.inputs], [], [])
        self.answered: list[object] = []
        self.said = joined(())


class Form:
    """The form of requests to a model, made from its `config`.

    `labels` are those of its outputs, by name. It keeps templates of usual requests, so it
    belongs to one thread.
    """

    def __init__(self, config: ModelConfig, labels: Mapping[str, Labels]) -> None:
        self.config = config
        self._labels = labels
        self._name = config.name
        self._batches = config.max_batch_size > 0
        self._most = max(config.max_batch_size, 1)
        self._needs_sequence = False
        # One item at a time, as for all requests of sequences.
        if config.sequence_batching is not None:
            self._most = 1
            self._needs_sequence = not config.sequence_batching.iterative_sequence
        self._inputs = {one.name: _Rule(one, 1 << i) for i, one in enumerate(config.input)}
        self._outputs = {one.name: _Rule(one, 1 << i) for i, one in enumerate(config.output)}
        self._least_inputs = sum(not one.optional for one in config.input)
        self._templates: dict[bytes, _HeaderTemplate] = {}  # by the words of InferHeader

    def decode_request(
        self,
        version: str,
        header: InferHeader,
        source: InputSource,
        resolve: Resolve,
        *,
        on_loop: bool = True,
    ) -> InferRequest:
        """Return the request for `header`, with its inputs' bytes taken from `source`.

        Raises InvalidRequest and the errors of `resolve`; with `on_loop` also NotFast for what
        belongs in a thread.
        """
        # Words that were read before: nothing is checked but the sizes.
        template = self._templates.get(header.words)
        if template is not None and (data := source.take_all(template.sizes)) is not None:
            request = template.filled(data)
            request.version = version
        else:
            request = self._read(version, header, source, resolve, on_loop=on_loop)
        if header.id:
            request.id = str(header.id)
        # 0 is none, in this API too.
        if header.correlation_id:
            flags = header.flags
            request.sequence = Sequence(
                header.correlation_id, bool(flags & START), bool(flags & END)
            )
        elif self._needs_sequence:
            raise InvalidRequest(
                f"inference request to model '{self._name}' must specify a non-zero correlation "
                f"ID, which is correlation_id in its header"
            )
        request.priority = header.priority
        request.timeout_us = header.timeout_us
        return request

    def _read(
        self,
        version: str,
        header: InferHeader,
        source: InputSource,
        resolve: Resolve,
        *,
        on_loop: bool,
    ) -> InferRequest:
        """Return the request without the fields that are not in the words of `header`."""
        batch = header.batch_size
        # Before all else, since sizes depend on it.
        if not 1 <= batch <= self._most:
            raise self._bad_batch(batch)
        wanted = self._wanted(header)
        count = len(header.inputs)
        if count != len(self._inputs) and not self._least_inputs <= count < len(self._inputs):
            raise self._bad_count(count)
        inputs: list[Tensor] = []
        spans: list[Span] = []
        seen = 0
        for one in header.inputs:
            rule = self._inputs.get(one.name)
            if rule is None or seen & rule.bit:
                raise self._bad_input(one, is_known=rule is not None)
            seen |= rule.bit
            tensor, size = self._input(rule, one, batch)
            inputs.append(tensor)
            if one.shared is not None:
                spans.append(resolve(*one.shared))
                if size or not rule.is_text:
                    self._check_shared_size(one, size)
                read_input(tensor, spans[-1], self._name, on_loop=on_loop)
            elif rule.is_text:
                tensor.data = self._strings(tensor, source, size, on_loop=on_loop)
            else:
                tensor.data = source.take(one.name, size, self._name)
        source.check_used_up(self._name)
        request = InferRequest(self._name, version, "", inputs, wanted)
        self._place(header, request, spans, resolve)
        if spans:
            take_spans(request, spans, on_loop=on_loop)
        if header.words and self._is_plain(header):
            self._remember(header.words, request)
        return request

    def _remember(self, words: bytes, request: InferRequest) -> None:
        if len(self._templates) >= _MOST_TEMPLATES:
            self._templates.clear()
        self._templates[words] = _HeaderTemplate(request)

    def _is_plain(self, header: InferHeader) -> bool:
        """Return whether all tensors travel raw, and the inputs in sizes that do not vary."""
        return not any(
            one.shared is not None or self._inputs[one.name].is_text for one in header.inputs
        ) and not any(one.shared is not None or one.top_k for one in header.outputs)

    def _input(self, rule: _Rule, given: InputHeader, batch: int) -> tuple[Tensor, int]:
        """Return the given tensor, without its data, and the size of the data in bytes."""
        # Old clients give the size of an item, newer ones that of the batch; 0 is neither.
        item, said = rule.item_bytes, given.batch_byte_size or given.byte_size * batch
        dims = given.dims or rule.dims
        if item is None or dims != rule.dims:
            self._check_dims(rule, given)
            item = prod(dims) * rule.datatype.size_bytes
        shape = (batch, *dims) if self._batches else dims
        if rule.is_text:  # only the client knows the size
            return Tensor(rule.name, rule.datatype, shape, b""), said
        size = item * batch
        if said and said != size:
            raise self._bad_size(rule, said, size, batch)
        return Tensor(rule.name, rule.datatype, shape, b""), size

    def _strings(
        self, tensor: Tensor, source: InputSource, size_bytes: int, *, on_loop: bool
    ) -> object:
        """Return the data of an input of BYTES, which is `size_bytes` long. Raises as `take`."""
        count = prod(tensor.shape)
        # Each element has 4 bytes or more: with fewer bytes the check fails at once, and needs no
        # thread.
        if on_loop and INLINE_STRINGS < count <= size_bytes // 4:
            raise NotFast
        data = source.take(tensor.name, size_bytes, self._name)
        check_strings(data, count, tensor.name, self._name)
        return data

    def _wanted(self, header: InferHeader) -> list[WantedOutput]:
        wanted = []
        seen = 0
        for one in header.outputs:
            rule = self._outputs.get(one.name)
            if rule is None:
                raise self._has_no(one, self._outputs)
            if seen & rule.bit:
                msg = f"output '{one.name}' already requested, model '{self._name}' gives each once"
                raise InvalidRequest(msg)
            seen |= rule.bit
            if one.top_k and not is_classifiable(rule.datatype):
                raise _no_classes(rule)
            if one.byte_size and rule.item_bytes is not None and one.byte_size != rule.item_bytes:
                raise _bad_output_size(one, rule.item_bytes)
            wanted.append(WantedOutput(one.name))
        return wanted

    def _check_dims(self, rule: _Rule, given: InputHeader) -> None:
        if not given.dims:
            if -1 not in rule.dims:
                return
            raise InvalidRequest(
                f"model supports variable-size for input '{rule.name}', request must specify input "
                f"shape for model '{self._name}': its dims are {dims_text(rule.dims)}, without the "
                f"batch dim"
            )
        if not rule.fits(given.dims):
            raise InvalidRequest(
                f"unexpected shape for input '{rule.name}' for model '{self._name}'. Expected "
                f"{dims_text(rule.dims)}, got {dims_text(given.dims)}; dims are without the batch "
                f"dim"
            )
        if prod(dim or 1 for dim in given.dims) > _MAX_SPAN // self._most:
            msg = f"input '{rule.name}' has dims {list(given.dims)}, which no array can have"
            raise InvalidRequest(msg)

    def _check_shared_size(self, given: InputHeader, size: int) -> None:
        if given.shared is not None and given.shared[2] != size:
            raise InvalidRequest(
                f"unexpected shared-memory size {given.shared[2]} for input '{given.name}', "
                f"expecting {size} for model '{self._name}', in bytes"
            )

    def _place(
        self, header: InferHeader, request: InferRequest, spans: list[Span], resolve: Resolve
    ) -> None:
        """Set the places of outputs in shared memory."""
        for one, wanted in zip(header.outputs, request.outputs, strict=True):
            if one.shared is None:
                continue
            if one.top_k:
                msg = f"output '{one.name}' is asked for as classes and in shared memory"
                raise InvalidRequest(msg)
            wanted.place = resolve(*one.shared)
            spans.append(wanted.place)

    def encode_response(
        self,
        header: InferHeader,
        request: InferRequest,
        response: InferResponse,
        *,
        on_loop: bool = True,
    ) -> Answer:
        """Return the answer to `header`, with its outputs in the order they were asked for.

        Raises InvalidRequest for an old client's output of another size than it gave, and for too
        many classes; BackendFailed for missing outputs and for datatypes other than configured,
        which this API cannot express; with `on_loop` also NotFast for what belongs in a thread.
        """
        if len(response.outputs) < len(header.outputs):
            raise self._left_out(header, response)
        template = self._templates.get(header.words)
        if template is not None:
            return self._answer_alike(template, header, response)
        pieces = [head_piece(response.model, response.version, header.batch_size)]
        buffers: list[Buffer | None] = []
        outputs = response.outputs
        for index, one in enumerate(header.outputs):
            name = one.name
            tensor = self._found(name, outputs, index)
            dims = tensor.shape[1:] if self._batches else tensor.shape
            is_special = one.top_k or one.shared is not None
            # Classes are looked for, and strings in shared memory walked through, element by
            # element.
            if is_special and on_loop and prod(tensor.shape) > INLINE_ELEMENTS:
                raise NotFast
            if one.top_k:
                if one.byte_size:
                    self._check_old_size(one, len(tensor.view()), header)
                labels = self._labels.get(name, ())
                pieces.append(classes_piece(tensor, one.top_k, labels, int(self._batches)))
                buffers.append(None)
                continue
            if one.shared is not None:
                pieces.append(raw_piece(name, dims, _placed_size(request, tensor)))
                buffers.append(None)
                continue
            data = tensor.packed()
            size = len(data)
            if header.is_old:
                self._check_old_size(one, size, header)
                pieces.append(raw_piece(name, None, size // header.batch_size))
            else:
                pieces.append(raw_piece(name, dims, size))
            buffers.append(data)
        return Answer(joined(pieces), header.id, buffers)

    def _answer_alike(
        self, template: _HeaderTemplate, header: InferHeader, response: InferResponse
    ) -> Answer:
        """Return an answer with only raw outputs; its header is reused if nothing has changed."""
        answered: list[object] = [response.version]
        buffers: list[Buffer | None] = []
        outputs = response.outputs
        for index, wanted in enumerate(template.pattern.outputs):
            tensor = outputs[index]
            if tensor.name != wanted.name:
                tensor = next(tensor for tensor in outputs if tensor.name == wanted.name)
            data = tensor.packed()
            buffers.append(data)
            answered += (tensor.name, tensor.shape, tensor.datatype, len(data))
        if answered != template.answered:
            template.said = self._said(answered, response, header.batch_size)
            template.answered = answered
        return Answer(template.said, header.id, buffers)

    def _said(self, answered: list[object], response: InferResponse, batch_size: int) -> Piece:
        pieces = [head_piece(response.model, response.version, batch_size)]
        for tensor in response.outputs:
            self._check_datatype(tensor)
        # In fours, as they were put together above.
        for name, shape, _, size in zip(*[iter(answered[1:])] * 4, strict=True):
            pieces.append(raw_piece(name, shape[1:] if self._batches else shape, size))
        return joined(pieces)

    def _found(self, name: str, outputs: list[Tensor], index: int) -> Tensor:
        tensor = outputs[index]
        # Models mostly answer in the order asked for.
        if tensor.name != name:
            tensor = next(tensor for tensor in outputs if tensor.name == name)
        self._check_datatype(tensor)
        return tensor

    def _check_datatype(self, tensor: Tensor) -> None:
        datatype = self._outputs[tensor.name].datatype
        # The header names no datatype, so clients would read the bytes as that of the
        # configuration.
        if tensor.datatype is not datatype:
            raise BackendFailed(
                f"model '{self._name}' produced output '{tensor.name}' as {tensor.datatype.value}, "
                f"its configuration says {datatype.value}"
            )

    def _check_old_size(self, one: OutputHeader, size: int, header: InferHeader) -> None:
        if one.byte_size and one.byte_size * header.batch_size != size:
            raise _bad_output_size(one, size // header.batch_size)

    def _left_out(self, header: InferHeader, response: InferResponse) -> InferdError:
        given = {tensor.name for tensor in response.outputs}
        missing = ", ".join(f"'{one.name}'" for one in header.outputs if one.name not in given)
        return BackendFailed(f"model '{self._name}' gave no output {missing}")

    def _bad_batch(self, batch: int) -> InferdError:
        if batch < 1:
            return InvalidRequest(
                f"inference request batch-size must be >= 1 for '{self._name}', also where it does "
                f"not batch: batch_size is {batch}"
            )
        if self.config.sequence_batching is not None:
            return InvalidRequest(
                f"inference request to model '{self._name}' must specify batch-size 1 due to "
                f"requirements of sequence batcher: batch_size is {batch}"
            )
        why = "" if self._batches else ", which does not batch and takes batch_size 1"
        return InvalidRequest(
            f"inference request batch-size must be <= {self.config.max_batch_size} for "
            f"'{self._name}'{why}: batch_size is {batch}"
        )

    def _bad_size(self, rule: _Rule, said: int, size: int, batch: int) -> InferdError:
        return InvalidRequest(
            f"specific batch-byte-size for input '{rule.name}' does not match expected byte-size "
            f"calculated from shape and datatype for model '{self._name}': it is {said}, a batch "
            f"of {batch} has {size}"
        )

    def _bad_count(self, count: int) -> InferdError:
        least, most = self._least_inputs, len(self._inputs)
        expected = f"{most} inputs"
        if least < most:
            expected = f"number of inputs between {least} and {most}"
        return InvalidRequest(
            f"expected {expected} but got {count} inputs for model '{self._name}', it takes "
            f"{_quoted(self._inputs)}"
        )

    def _bad_input(self, given: InputHeader, *, is_known: bool) -> InferdError:
        if is_known:
            return InvalidRequest(
                f"input '{given.name}' already exists in request, model '{self._name}' takes each "
                f"once"
            )
        return self._has_no(given, self._inputs)

    def _has_no(self, given: InputHeader | OutputHeader, known: Mapping[str, _Rule]) -> InferdError:
        kind, has = ("input", "takes") if isinstance(given, InputHeader) else ("output", "gives")
        return InvalidRequest(
            f"unexpected inference {kind} '{given.name}' for model '{self._name}', it {has} "
            f"{_quoted(known)}"
        )


def _placed_size(request: InferRequest, tensor: Tensor) -> int:
    """Return the size of an output that was put in shared memory; its tensor has lost the data."""
    place = next(one.place for one in request.outputs if one.name == tensor.name)
    assert place is not None
    size = placed_bytes(tensor.datatype, tensor.shape, place.view)
    return min(size, len(place.view))  # the client may have written there meanwhile


def _quoted(names: Mapping[str, _Rule]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"


def _no_classes(rule: _Rule) -> InferdError:
    kind = "STRING" if rule.is_text else rule.datatype.value
    return InvalidRequest(
        f"class result not available for output '{rule.name}' due to unsupported type "
        f"'TYPE_{kind}': it must be an integer, FP32 or FP64"
    )


def _bad_output_size(one: OutputHeader, item_bytes: int) -> InferdError:
    return InvalidRequest(
        f"output '{one.name}' is said to have {one.byte_size} bytes for each item of the batch, "
        f"it has {item_bytes}"
    )
