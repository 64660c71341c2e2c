"""RequestCheck: whether requests fit the configuration of a model, and what they leave out.

The errors for inputs that do not fit say what would.
"""

from collections.abc import Iterable, Mapping, Sequence

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on, takes_table
from inferd.config.parameter_names import ANY_INPUT_NAME, DEFAULT_OUTPUTS
from inferd.core.request import InferRequest, WantedOutput
from inferd.engine.serving.raw import raw_input
from inferd.engine.serving.rule import TensorRule, are_named, quoted
from inferd.engine.serving.table import MOST_ROWS, decode_contents, is_single_column, row_count
from inferd.errors import InferdError, InvalidRequest
from inferd.tensor.classification import check_classifiable
from inferd.tensor.tensor import Tensor, dims_text

_ANY_WIDTH = (-1,)

# Clients send few shapes, and a bound keeps one that sends many from filling the memory.
MOST_SOUND = 512
"""The number of batch keys remembered as having passed the check."""

MOST_EMPTY = 1 << 31
"""What the other dims of an input without elements may multiply to; loops over them take a second.

Inputs with elements have no such limit: it is their bytes that are limited.
"""

MOST_NAMED = 100
"""How many inputs or outputs beyond the model's own an error looks at and names.

A request can have millions, and sorting them would hold up all others.
"""


class RequestCheck:
    """Checks the requests of one model version, which has rules for `inputs` and for `outputs`.

    The one input of a model whose parameters say so has any name, or comes as a table.
    """

    def __init__(
        self,
        config: ModelConfig,
        inputs: Mapping[str, TensorRule],
        outputs: Mapping[str, TensorRule],
    ) -> None:
        self._name = config.name
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self._all_outputs = list(outputs.values())
        # Most requests are like one before, and are checked by one look-up.
        self._sound: dict[object, int] = {}  # the batch sizes of requests by their batch_key
        self._batch_dims = 1 if config.max_batch_size > 0 else 0
        self._default_outputs = _default_outputs(config)
        self._takes_any_name = is_on(config, ANY_INPUT_NAME)
        has_one = self._takes_any_name and len(self._inputs) == 1
        self._only = next(iter(self._inputs.values())) if has_one else None
        self._is_table = takes_table(config)  # if of more than max_batch_size rows, it runs alone
        self._most_rows = MOST_ROWS if self._is_table else config.max_batch_size
        # "All inputs are there" is one comparison, without a set per request.
        self._all_bits = (1 << len(self._inputs)) - 1
        self._required = frozenset(i.name for i in config.input if not i.optional)
        self._max_batch_size = config.max_batch_size

    def check(self, request: InferRequest) -> None:
        """Check `request`, put its wanted outputs in the model's order, and note its batch size.

        Raises InvalidRequest naming the input or output, what it has and what was expected.
        Requests that are alike are checked once, if the first passed without being altered.
        """
        # None is never in there, so a request without a key is checked in full.
        batch_size = self._sound.get(request.batch_key)
        if batch_size is not None:
            request.batch_size = batch_size
            return
        outputs = request.outputs
        self._check_anew(request)
        for tensor in request.inputs:
            if 0 in tensor.shape:
                self._check_empty(tensor)
        # Altered requests are not remembered, since the next one of the key would have to be
        # altered, too.
        if request.batch_key is None or request.outputs is not outputs or request.has_top_k:
            return
        # All at once: finding the oldest would cost each request something.
        if len(self._sound) >= MOST_SOUND:
            self._sound.clear()
        self._sound[request.batch_key] = request.batch_size

    def _check_anew(self, request: InferRequest) -> None:
        if request.raw or self._default_outputs:
            self._complete(request)
        if self._is_table and request.inputs:
            self._check_table(request)
            return
        rules = self._inputs
        seen_bits = 0
        batch_size = None
        for tensor in request.inputs:
            rule = rules.get(tensor.name) or self._renamed(request)
            if tensor.datatype is not rule.datatype:
                raise self._wrong_datatype(tensor, rule)
            shape = tensor.shape
            # A comparison of tuples decides for fixed dims, without a call.
            if shape[rule.batch_dims :] != rule.fixed_dims and not rule.fits(shape):
                self._take_scalar(tensor, rule)
                request.batch_key = None  # its shape has changed
            if rule.batch_dims and shape[0] != batch_size:
                if batch_size is not None or not 1 <= shape[0] <= self._most_rows:
                    raise self._wrong_batch(tensor, batch_size)
                batch_size = shape[0]
            seen_bits |= rule.bit
        request.batch_size = batch_size or 1
        # Also the number: an input given twice sets its bit once.
        if seen_bits != self._all_bits or len(request.inputs) != len(rules):
            self._check_absent(request.inputs)
        if request.outputs:
            self._check_outputs(request)

    def _check_table(self, request: InferRequest) -> None:
        """Check a request of rows, one input or the columns of a table, of any datatypes."""
        inputs = request.inputs
        if decode_contents(inputs):
            request.batch_key = None  # its data have changed
        rows = row_count(inputs)
        rules = self._inputs
        if len(inputs) > 1:
            if len({tensor.name for tensor in inputs}) < len(inputs) or (
                len(rules) > 1 and {tensor.name for tensor in inputs} != rules.keys()
            ):
                raise self._wrong_names(inputs)
        elif len(rules) == 1:
            rule = rules.get(inputs[0].name) or self._renamed(request)
            shape = inputs[0].shape
            # Dims of one -1 are those of a model that does not tell what it takes.
            is_known = rule.dims != _ANY_WIDTH
            if is_known and not rule.fits(shape) and not is_single_column(shape, rule.dims):
                raise self._wrong_shape(inputs[0], rule)
        elif not self._takes_any_name:
            raise self._wrong_names(inputs)
        if self._batch_dims:
            if not 1 <= rows <= self._most_rows:
                raise self._wrong_batch(inputs[0], None)
            request.batch_size = rows
        if request.outputs:
            self._check_outputs(request)

    def _renamed(self, request: InferRequest) -> TensorRule:
        """Rename the one input of a request if the model accepts any name, and return its rule.

        Raises InvalidRequest otherwise.
        """
        rule = self._only
        # Of several inputs one could only guess which is meant.
        if rule is None or len(request.inputs) > 1:
            raise self._wrong_names(request.inputs)
        request.inputs[0].name = rule.name
        request.batch_key = None  # its name has changed
        return rule

    def _complete(self, request: InferRequest) -> None:
        """Fill in the default outputs, and make one input of raw bytes. Raises InvalidRequest."""
        if self._default_outputs and not request.outputs:
            request.outputs = self._default_outputs[request.binary_output]
        if request.raw:
            rules = list(self._inputs.values())
            request.inputs = [raw_input(request.inputs[0].data, self._name, rules)]
            request.raw = False  # a stream's request is checked twice

    def _check_empty(self, tensor: Tensor) -> None:
        """Check an input without elements: operators may loop over its other dims for hours.

        Raises InvalidRequest if these multiply to more than MOST_EMPTY.
        """
        span = 1
        for dim in tensor.shape:
            if dim:
                span *= dim
        if span > MOST_EMPTY:
            raise InvalidRequest(
                f"input '{tensor.name}' for model '{self._name}' has shape "
                f"{dims_text(tensor.shape)}, and no elements; the dims beside its 0 may multiply "
                f"to at most {MOST_EMPTY}"
            )

    def _take_scalar(self, tensor: Tensor, rule: TensorRule) -> None:
        """Give a tensor without dims the dims [1], which is how a configuration declares a scalar.

        Raises InvalidRequest unless the configuration declares one, or any number of dims.
        """
        shape = tensor.shape
        if rule.is_unranked and len(shape) >= rule.batch_dims and min(shape, default=0) >= 0:
            return
        if shape or rule.shape != (1,):
            raise self._wrong_shape(tensor, rule)
        tensor.shape = rule.shape

    def _check_absent(self, inputs: Sequence[Tensor]) -> None:
        """Check that `inputs`, all known, are each given once and lack only optional ones."""
        names = {tensor.name for tensor in inputs}
        if len(names) != len(inputs) or not names >= self._required:
            raise self._wrong_names(inputs)

    def _check_outputs(self, request: InferRequest) -> None:
        outputs = request.outputs
        # Clients mostly ask in the model's order: then nothing is built.
        if len(outputs) != len(self._all_outputs) or not are_named(outputs, self._all_outputs):
            outputs = self._in_order(outputs)
            if outputs != request.outputs:
                request.outputs = outputs
        for output in outputs:
            if output.top_k:
                check_classifiable(output.name, self._outputs[output.name].datatype)
                request.has_top_k = True

    def _in_order(self, outputs: Sequence[WantedOutput]) -> list[WantedOutput]:
        """Return the wanted outputs in the model's order. Raises InvalidRequest."""
        names: dict[str, WantedOutput] = {}
        # Of more than the model has, one is unknown or there twice: no need to look at all.
        for output in outputs[: len(self._outputs) + MOST_NAMED]:
            if output.name in names:
                raise InvalidRequest(
                    f"output '{output.name}' already exists in request, model '{self._name}' gives "
                    f"each once"
                )
            names[output.name] = output
        if not names.keys() <= self._outputs.keys():
            raise InvalidRequest(
                f"unexpected inference output {quoted(names.keys() - self._outputs.keys())} for "
                f"model '{self._name}', it gives {quoted(self._outputs)}"
            )
        return [names[name] for name in self._outputs if name in names]

    # How each of these errors begins: docs/decisions/0024-error-texts.md.

    def _wrong_names(self, inputs: Sequence[Tensor]) -> InferdError:
        """Return the error for inputs of which one is unknown, missing, or given twice."""
        names: set[str] = set()
        # Of more than the model has, one is unknown or there twice: no need to look at all.
        for tensor in inputs[: len(self._inputs) + MOST_NAMED]:
            if tensor.name in names:
                return InvalidRequest(
                    f"input '{tensor.name}' already exists in request, "
                    f"model '{self._name}' takes {quoted(self._inputs)}, each once"
                )
            names.add(tensor.name)
        least, most, count = len(self._required), len(self._inputs), len(inputs)
        unknown, missing = names - self._inputs.keys(), self._required - names
        if missing and count > len(names):
            missing -= {tensor.name for tensor in inputs}
        but = f", but missing required input(s) {_listed(missing)}" if missing else ""
        takes = "It takes"
        if not least <= count <= most:
            text = f"expected {most} inputs but got {count} inputs"
            if least < most:
                text = (
                    f"expected number of inputs between {least} and {most} but got {count} inputs"
                )
            if unknown:
                takes = f"It has no input {quoted(unknown)}, it takes"
        elif unknown:
            text = f"unexpected inference input {quoted(unknown)}"
        else:
            text, but = but.removeprefix(", but "), ""
        plea = " Please provide all required input(s)." if missing else ""
        return InvalidRequest(
            f"{text} for model '{self._name}'. Got input(s) {_listed(names)}{but}.{plea} "
            f"{takes} {quoted(self._inputs)}"
        )

    def _wrong_datatype(self, tensor: Tensor, rule: TensorRule) -> InferdError:
        """Return the error for an input of another datatype."""
        return InvalidRequest(
            f"inference input '{tensor.name}' data-type is '{tensor.datatype.value}', "
            f"but model '{self._name}' expects '{rule.datatype.value}'"
        )

    def _wrong_shape(self, tensor: Tensor, rule: TensorRule) -> InferdError:
        """Return the error for an input of another shape, with a shape that would do."""
        text = (
            f"unexpected shape for input '{tensor.name}' for model '{self._name}'. "
            f"Expected {dims_text(rule.shape)}, got {dims_text(tensor.shape)}"
        )
        return InvalidRequest(text + self._hint(rule, tensor.shape))

    def _hint(self, rule: TensorRule, shape: tuple[int, ...]) -> str:
        """Return what to send instead of `shape`, "" unless a 1 more or less makes it fit."""
        if not rule.batch_dims:
            # A client that has put a batch of one in front of a model without batches.
            if shape[:1] != (1,) or not rule.fits(shape[1:]):
                return ""
            return f"; the model does not batch, leave out the 1 in front: {dims_text(shape[1:])}"
        if rule.fits((1, *shape)):
            return (
                f"; the first dim is the batch size, put a 1 before your shape for one item: "
                f"{dims_text((1, *shape))}"
            )
        # Rows of one value each, sent as a list: common with models of one column.
        behind = (*shape, 1)
        if rule.fits(behind) and 1 <= shape[0] <= self._most_rows:
            return (
                f"; the first dim is the batch size, put a 1 behind your shape for {shape[0]} "
                f"item(s): {dims_text(behind)}"
            )
        return ""

    def _wrong_batch(self, tensor: Tensor, batch_size: int | None) -> InferdError:
        """Return the error for an input whose batch is too small, too large, or unlike others'.

        `batch_size` is that of the inputs before it, None if it is the first.
        """
        size = tensor.shape[0]
        if batch_size is not None:
            return InvalidRequest(
                f"input '{tensor.name}' batch size does not match other inputs for "
                f"'{self._name}': it is {size}, that of another is {batch_size}"
            )
        if size > self._most_rows:
            return InvalidRequest(
                f"inference request batch-size must be <= {self._most_rows} for "
                f"'{self._name}', that of input '{tensor.name}' is {size}"
            )
        return InvalidRequest(
            f"input '{tensor.name}' has batch size {size}, model '{self._name}' "
            f"takes 1 to {self._max_batch_size}"
        )


def _default_outputs(config: ModelConfig) -> dict[bool, list[WantedOutput]]:
    """Return the outputs of requests that name none, by whether these want binary data.

    Return {} unless the configuration names them.
    """
    named = config.parameters.get(DEFAULT_OUTPUTS, "").split(",")
    names = [output.name for output in config.output if output.name in named]
    if not names:
        return {}
    return {binary: [WantedOutput(name, binary) for name in names] for binary in (False, True)}


def _listed(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in sorted(names)) + "]"
