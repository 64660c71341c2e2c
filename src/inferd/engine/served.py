"""Served: one loaded version of a model, and the check of a request against its configuration."""

from collections.abc import Sequence
from math import prod

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import Scheduler
from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import BackendFailed, InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

_BATCH = (-1,)


class _Rule:
    """What the configuration says of one input or output, ready to be compared."""

    __slots__ = ("batch_dims", "datatype", "dims", "is_fixed", "max_batch_size", "name")

    def __init__(self, declared: ModelInput | ModelOutput, max_batch_size: int) -> None:
        self.name = declared.name
        self.datatype = declared.datatype
        self.dims = declared.dims
        self.max_batch_size = max_batch_size
        self.batch_dims = 1 if max_batch_size > 0 else 0
        self.is_fixed = -1 not in declared.dims

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole shape as metadata shows it: -1 for the batch and for variable dims."""
        return _BATCH + self.dims if self.batch_dims else self.dims

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Tell whether `shape`, batch dim included, is one the configuration allows."""
        inner = shape[1:] if self.batch_dims else shape
        if self.batch_dims and not shape:
            return False
        if self.is_fixed:
            return inner == self.dims
        return len(inner) == len(self.dims) and all(
            want in (-1, got) for want, got in zip(self.dims, inner, strict=True)
        )


class Served:
    """A version that answers requests. Built once, when the version has loaded."""

    def __init__(
        self, config: ModelConfig, version: int, platform: str, scheduler: Scheduler
    ) -> None:
        self.config = config
        self.name = config.name
        self.version = str(version)
        self.platform = platform
        self.scheduler = scheduler
        self._max_batch_size = config.max_batch_size
        self._inputs = {i.name: _Rule(i, config.max_batch_size) for i in config.input}
        self._outputs = {o.name: _Rule(o, config.max_batch_size) for o in config.output}
        self._names = frozenset(self._inputs)
        self._required = frozenset(i.name for i in config.input if not i.optional)

    def inputs(self) -> list[TensorMetadata]:
        """Return the inputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._inputs.values()]

    def outputs(self) -> list[TensorMetadata]:
        """Return the outputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._outputs.values()]

    def check_request(self, request: InferRequest) -> None:
        """Check `request` against the configuration, and put wanted outputs in the model's order.

        Raises InvalidRequest naming the input or output, what it has and what was expected.
        """
        if request.raw:
            request.inputs = [self._deduced(request.inputs[0].data)]
        names = {tensor.name for tensor in request.inputs}
        if names != self._names or len(names) != len(request.inputs):
            self._check_names(request.inputs)
        batch_size = -1
        for tensor in request.inputs:
            rule = self._inputs[tensor.name]
            if tensor.datatype is not rule.datatype:
                raise self._bad_datatype(tensor, rule)
            if not rule.fits(tensor.shape):
                raise self._bad_shape(tensor, rule)
            if rule.batch_dims and tensor.shape[0] != batch_size:
                batch_size = self._check_batch(tensor, batch_size)
        if request.outputs:
            request.outputs = self._in_order(request.outputs)

    def check_response(self, request: InferRequest, response: InferResponse) -> None:
        """Check what the model made of `request`, and keep the wanted outputs in model order.

        Raises BackendFailed: a model that breaks its own configuration is the server's fault.
        """
        got = {tensor.name: tensor for tensor in response.outputs}
        names = [wanted.name for wanted in request.outputs] if request.outputs else self._outputs
        try:
            response.outputs = [got[name] for name in names]
        except KeyError as missing:
            msg = f"model '{self.name}' did not produce output {missing}; it gave {sorted(got)}"
            raise BackendFailed(msg) from None
        for tensor in response.outputs:
            rule = self._outputs[tensor.name]
            if tensor.datatype is not rule.datatype or not rule.fits(tensor.shape):
                msg = (
                    f"model '{self.name}' produced output '{tensor.name}' as "
                    f"{tensor.datatype.value} {list(tensor.shape)}, its configuration says "
                    f"{rule.datatype.value} {list(rule.shape)}"
                )
                raise BackendFailed(msg)

    def _deduced(self, body: memoryview) -> Tensor:
        """Return the one input that a raw binary request means (Binary Tensor Data extension)."""
        rules = list(self._inputs.values())
        if len(rules) != 1:
            msg = (
                f"a raw binary request needs a model with exactly one input, "
                f"model '{self.name}' has {len(rules)}"
            )
            raise InvalidRequest(msg)
        [rule] = rules
        batch = (1,) * rule.batch_dims
        if rule.datatype is DataType.BYTES:
            if prod(-dim if dim == -1 else dim for dim in rule.dims) != 1:
                raise self._not_deducible(rule, "BYTES are taken only as a single element")
            inner = tuple(abs(dim) for dim in rule.dims)
            prefix = len(body).to_bytes(4, "little")
            return Tensor(rule.name, rule.datatype, batch + inner, b"".join((prefix, body)))
        if rule.dims.count(-1) > 1:
            raise self._not_deducible(rule, "at most one dim may be variable")
        size_bytes = rule.datatype.size_bytes * prod(dim for dim in rule.dims if dim != -1)
        variable, rest = divmod(len(body), size_bytes) if size_bytes else (0, len(body))
        if rest or (rule.is_fixed and variable != 1):
            raise self._not_deducible(rule, f"{len(body)} bytes do not fill it")
        inner = tuple(variable if dim == -1 else dim for dim in rule.dims)
        return Tensor(rule.name, rule.datatype, batch + inner, body)

    def _not_deducible(self, rule: _Rule, why: str) -> InferdError:
        return InvalidRequest(
            f"a raw binary request cannot be made into input '{rule.name}' of model "
            f"'{self.name}', {rule.datatype.value} {list(rule.shape)}: {why}"
        )

    def _check_names(self, inputs: Sequence[Tensor]) -> None:
        seen: set[str] = set()
        for tensor in inputs:
            if tensor.name in seen:
                msg = f"input '{tensor.name}' is given more than once"
                raise InvalidRequest(msg)
            seen.add(tensor.name)
        complaints = []
        if unknown := seen - self._names:
            complaints.append(f"has no input {_quoted(unknown)}")
        if missing := self._required - seen:
            complaints.append(f"also needs input {_quoted(missing)}")
        if complaints:
            msg = (
                f"model '{self.name}' {' and '.join(complaints)}; "
                f"it takes {_quoted(self._names)}, the request has {_quoted(seen)}"
            )
            raise InvalidRequest(msg)

    def _bad_datatype(self, tensor: Tensor, rule: _Rule) -> InferdError:
        return InvalidRequest(
            f"input '{tensor.name}' has datatype {tensor.datatype.value}, "
            f"model '{self.name}' expects {rule.datatype.value}"
        )

    def _bad_shape(self, tensor: Tensor, rule: _Rule) -> InferdError:
        text = (
            f"input '{tensor.name}' has shape {list(tensor.shape)}, "
            f"model '{self.name}' expects {list(rule.shape)}"
        )
        if rule.batch_dims and len(tensor.shape) == len(rule.dims):
            text += "; the first dim is the batch size, put a 1 before your shape for one item"
        return InvalidRequest(text)

    def _check_batch(self, tensor: Tensor, batch_size: int) -> int:
        size = tensor.shape[0]
        if batch_size >= 0:
            msg = (
                f"input '{tensor.name}' has batch size {size}, "
                f"another input of the same request has {batch_size}"
            )
            raise InvalidRequest(msg)
        if not 1 <= size <= self._max_batch_size:
            msg = (
                f"input '{tensor.name}' has batch size {size}, model '{self.name}' "
                f"takes 1 to {self._max_batch_size}"
            )
            raise InvalidRequest(msg)
        return size

    def _in_order(self, wanted: Sequence[WantedOutput]) -> list[WantedOutput]:
        by_name = {output.name: output for output in wanted}
        if unknown := by_name.keys() - self._outputs.keys():
            msg = (
                f"model '{self.name}' has no output {_quoted(unknown)}, "
                f"it gives {_quoted(self._outputs)}"
            )
            raise InvalidRequest(msg)
        return [by_name[name] for name in self._outputs if name in by_name]


def _quoted(names: "Sequence[str] | set[str] | frozenset[str] | dict[str, _Rule]") -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"
