"""RequestCheck: whether requests fit the configuration of a model, and what they leave out."""

from collections.abc import Mapping, Sequence

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on, takes_table
from inferd.config.parameter_names import ANY_INPUT_NAME, DEFAULT_OUTPUTS
from inferd.core.request import InferRequest, WantedOutput
from inferd.engine.serving.raw import raw_input
from inferd.engine.serving.refusals import Refusals, quoted
from inferd.engine.serving.rule import TensorRule, are_named, only_of
from inferd.engine.serving.table import MOST_ROWS, decode_contents, is_single_column, row_count
from inferd.errors import InvalidRequest
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
        self._only = only_of(self._inputs) if self._takes_any_name else None
        self._is_table = takes_table(config)  # if of more than max_batch_size rows, it runs alone
        self._most_rows = MOST_ROWS if self._is_table else config.max_batch_size
        # "All inputs are there" is one comparison, without a set per request.
        self._all_bits = (1 << len(self._inputs)) - 1
        self._required = frozenset(i.name for i in config.input if not i.optional)
        self._refusals = Refusals(
            self._name, self._inputs, self._required, self._most_rows, config.max_batch_size
        )

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
                raise self._refusals.datatype(tensor, rule)
            shape = tensor.shape
            # A comparison of tuples decides for fixed dims, without a call.
            if shape[rule.batch_dims :] != rule.fixed_dims and not rule.fits(shape):
                self._take_scalar(tensor, rule)
                request.batch_key = None  # its shape has changed
            if rule.batch_dims and shape[0] != batch_size:
                if batch_size is not None or not 1 <= shape[0] <= self._most_rows:
                    raise self._refusals.batch(tensor, batch_size)
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
                raise self._refusals.names(inputs)
        elif len(rules) == 1:
            rule = rules.get(inputs[0].name) or self._renamed(request)
            shape = inputs[0].shape
            # Dims of one -1 are those of a model that does not tell what it takes.
            is_known = rule.dims != _ANY_WIDTH
            if is_known and not rule.fits(shape) and not is_single_column(shape, rule.dims):
                raise self._refusals.shape(inputs[0], rule)
        elif not self._takes_any_name:
            raise self._refusals.names(inputs)
        if self._batch_dims:
            if not 1 <= rows <= self._most_rows:
                raise self._refusals.batch(inputs[0], None)
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
            raise self._refusals.names(request.inputs)
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
            msg = (
                f"input '{tensor.name}' for model '{self._name}' has shape "
                f"{dims_text(tensor.shape)}, and no elements; the dims beside its 0 may multiply "
                f"to at most {MOST_EMPTY}"
            )
            raise InvalidRequest(msg)

    def _take_scalar(self, tensor: Tensor, rule: TensorRule) -> None:
        """Give a tensor without dims the dims [1], which is how a configuration declares a scalar.

        Raises InvalidRequest unless the configuration declares one, or any number of dims.
        """
        shape = tensor.shape
        if rule.is_unranked and len(shape) >= rule.batch_dims and min(shape, default=0) >= 0:
            return
        if shape or rule.shape != (1,):
            raise self._refusals.shape(tensor, rule)
        tensor.shape = rule.shape

    def _check_absent(self, inputs: Sequence[Tensor]) -> None:
        """Check that `inputs`, all known, are each given once and lack only optional ones."""
        names = {tensor.name for tensor in inputs}
        if len(names) != len(inputs) or not names >= self._required:
            raise self._refusals.names(inputs)

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
        for output in outputs:
            if output.name in names:
                msg = (
                    f"output '{output.name}' already exists in request, model '{self._name}' gives "
                    f"each once"
                )
                raise InvalidRequest(msg)
            names[output.name] = output
        if not names.keys() <= self._outputs.keys():
            msg = (
                f"unexpected inference output {quoted(names.keys() - self._outputs.keys())} for "
                f"model '{self._name}', it gives {quoted(self._outputs)}"
            )
            raise InvalidRequest(msg)
        return [names[name] for name in self._outputs if name in names]


def _default_outputs(config: ModelConfig) -> dict[bool, list[WantedOutput]]:
    """Return the outputs of requests that name none, by whether these want binary data.

    Return {} unless the configuration names them.
    """
    named = config.parameters.get(DEFAULT_OUTPUTS, "").split(",")
    names = [output.name for output in config.output if output.name in named]
    if not names:
        return {}
    return {binary: [WantedOutput(name, binary) for name in names] for binary in (False, True)}
