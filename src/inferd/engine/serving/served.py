"""Served: a loaded version of a model, which checks requests against its configuration."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on, takes_table
from inferd.config.parameter_names import (
    ANY_INPUT_NAME,
    DEFAULT_OUTPUTS,
    FOUND_OUTPUTS,
    JOINED,
    JOINING_REASON,
)
from inferd.core.interfaces import AsyncInstance, PromptScheduler, Scheduler
from inferd.core.metadata import TensorMetadata
from inferd.core.request import InferRequest, InferResponse, WantedOutput, wanted_of
from inferd.core.rows import AS_CONFIGURED, Joining
from inferd.engine.serving.identity import Identity
from inferd.engine.serving.raw import raw_input
from inferd.engine.serving.refusals import Refusals, quoted
from inferd.engine.serving.rule import TensorRule, are_named, expect, only_of
from inferd.engine.serving.table import MOST_ROWS, decode_contents, is_single_column, row_count
from inferd.errors import BackendFailed, InvalidRequest
from inferd.observe.prometheus import Observed
from inferd.observe.stats import Counts
from inferd.tensor.classification import Labels, check_classifiable, classified, is_classifiable
from inferd.tensor.tensor import Tensor, dims_text

if TYPE_CHECKING:
    from inferd.engine.serving.instances import Instances
    from inferd.schedulers.ensemble import EnsembleScheduler

log = logging.getLogger("inferd.model")

_ANY_WIDTH = (-1,)

INLINE_ELEMENTS = 64 << 10
"""Outputs of more elements are classified in a thread, not on the event loop."""

MAX_WARNINGS = 1000
"""The most outputs of a version that the log warns about."""

INLINE_CLASSES = 8 << 10
"""Outputs of which more classes are wanted are classified in a thread, too."""

MOST_SOUND = 512
"""The number of batch keys remembered as having passed the check."""

MOST_EMPTY = 1 << 31
"""What the other dims of an input without elements may multiply to; loops over them take a second.

Inputs with elements have no such limit: it is their bytes that are limited.
"""


class Served:
    """A version that answers requests, with its `counts`. Built once, when the version has loaded.

    `counts` is to be given when the scheduler, too, counts there. `labels` are those of the
    outputs, by name. `load_s` is how long it took to load, and `is_on_gpu` whether it has an
    instance on a GPU. `nesting` counts the ensembles inside each other, this one included, and
    `run_count` the runs of models that one request takes; `way` says where most of these are.
    `instances` opens more instances, and closes some; an ensemble has none. It has its `steps`, the
    versions that they call, and the scheduler of an `ensemble`, which may be behind a cache.
    `prompt` is its scheduler, if that may have answers at once.
    `identity` tells what its answers hang on, and `is_cached` whether they are kept
    (inferd.engine.loading.caching). `joining` tells whether its requests are joined,
    `why_isolated` why it runs in a worker that would not otherwise. What a model
    that `is_lax` gives may have other shapes and datatypes than its configuration says, and be more
    or less. One that `has_sequences` takes requests that belong together, itself or in a step of
    the ensemble it is. The one input of a model whose parameters say so has any name, or comes as a
    table.
    """

    def __init__(
        self,
        config: ModelConfig,
        version: int,
        platform: str,
        scheduler: Scheduler,
        counts: Counts | None = None,
        labels: Mapping[str, Labels] | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.version = str(version)
        self.is_decoupled = config.decoupled
        self.platform = platform
        self.run_by(scheduler)
        self._stop_joining: Callable[[], bool] | None = getattr(scheduler, "stop_joining", None)
        self.counts = counts or Counts()
        self.load_s, self.is_on_gpu = 0.0, False
        self.nesting, self.run_count = 0, 1
        self.way: tuple[str, ...] = ()
        self.instances: Instances | None = None
        self.ensemble: EnsembleScheduler | None = None
        self.steps: Sequence[Served] = ()
        self.identity = Identity()
        self.is_cached = self.is_lax = False
        self.joining, self.why_isolated = AS_CONFIGURED, ""
        self.has_sequences = config.sequence_batching is not None
        self._sound: dict[object, int] = {}  # the batch sizes of requests by their batch_key
        self._warned_of: set[str] = set()  # the outputs of which the log says that they are odd
        self.labels = labels or {}
        self._batch_dims = batch_dims = 1 if config.max_batch_size > 0 else 0
        self._inputs = {
            declared.name: TensorRule(declared, batch_dims, 1 << index)
            for index, declared in enumerate(config.input)
        }
        self._outputs = {o.name: TensorRule(o, batch_dims) for o in config.output}
        self._all_outputs = list(self._outputs.values())
        self._default_outputs = _default_outputs(config)
        self._takes_any_name = is_on(config, ANY_INPUT_NAME)
        self._only = only_of(self._inputs) if self._takes_any_name else None
        self._is_table = takes_table(config)  # if of more than max_batch_size rows, it runs alone
        self._most_rows = MOST_ROWS if self._is_table else config.max_batch_size
        self._finds_outputs = is_on(config, FOUND_OUTPUTS)
        expect(self._all_outputs if self._finds_outputs else ())
        self._all_bits = (1 << len(self._inputs)) - 1
        self._required = frozenset(i.name for i in config.input if not i.optional)
        self._refusals = Refusals(
            self.name, self._inputs, self._required, self._most_rows, config.max_batch_size
        )

    def run_by(self, scheduler: Scheduler) -> None:
        """Have `scheduler` run the requests from now on."""
        self.scheduler = scheduler
        self.prompt: PromptScheduler | None = None
        prompt = getattr(scheduler, "prompt", scheduler)  # some leave answers at once to another
        if isinstance(prompt, PromptScheduler) and prompt.may_be_prompt:
            self.prompt = prompt

    @property
    def unavailable_reason(self) -> str:
        """Why no instance takes requests for now, though the version is loaded; "" if one does.

        What keeps a step from running keeps its ensemble.
        """
        for step in self.steps:
            if unavailable_reason := step.unavailable_reason:
                return f"model '{step.name}', which it calls, cannot run: {unavailable_reason}"
        reasons = [instance.unavailable_reason for instance in self.remote()]
        return reasons[0] if reasons and all(reasons) else ""

    async def says_ready(self) -> bool:
        """Tell whether all instances that can be asked call themselves ready."""
        return all(await asyncio.gather(*(one.says_ready() for one in self.remote())))

    def remote(self) -> Sequence[AsyncInstance]:
        """Return the instances in workers."""
        return self.instances.remote() if self.instances is not None else ()

    def inputs(self) -> list[TensorMetadata]:
        """Return the inputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._inputs.values()]

    def outputs(self) -> list[TensorMetadata]:
        """Return the outputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._outputs.values()]

    def observed(self) -> Observed:
        """Return this version as the metrics report it."""
        return Observed(
            self.name,
            self.version,
            self.counts,
            self.scheduler.pending_count,
            self.load_s,
            self.config.metric_tags,
            self.is_on_gpu,
            self.is_cached,
            self.joining.state == "joined" if self.joining.reason else None,
            bool(self.why_isolated),
        )

    def shown_config(self) -> ModelConfig:
        """Return the configuration as clients see it: its parameters tell of joining, too."""
        config, joining = self.config, self.joining
        if not joining.reason:
            return config
        shown = {JOINED: joining.state, JOINING_REASON: joining.reason}
        return replace(config, parameters=config.parameters | shown)

    def check_request(self, request: InferRequest) -> None:
        """Check `request`, put its wanted outputs in the model's order, and note its batch size.

        Raises InvalidRequest naming the input or output, what it has and what was expected.
        Requests that are alike are checked once, if the first passed without being altered.
        """
        batch_size = self._sound.get(request.batch_key)
        if batch_size is not None:
            request.batch_size = batch_size
            return
        outputs = request.outputs
        self._check_anew(request)
        for tensor in request.inputs:
            if 0 in tensor.shape:
                self._check_empty(tensor)
        if request.batch_key is None or request.outputs is not outputs or request.has_top_k:
            return
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
            if shape[rule.batch_dims :] != rule.fixed_dims and not rule.fits(shape):
                self._take_scalar(tensor, rule)
                request.batch_key = None  # its shape has changed
            if rule.batch_dims and shape[0] != batch_size:
                if batch_size is not None or not 1 <= shape[0] <= self._most_rows:
                    raise self._refusals.batch(tensor, batch_size)
                batch_size = shape[0]
            seen_bits |= rule.bit
        request.batch_size = batch_size or 1
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

    def check_response(self, request: InferRequest, response: InferResponse) -> None:
        """Check the model's answer to `request`, and keep the wanted outputs in the model's order.

        Raises BackendFailed: a model that breaks its own configuration is the server's fault. Dims
        that only its file declares do not bind it: exporters are often wrong about outputs. A
        lax model may give other shapes and datatypes, may give outputs that the configuration does
        not have, which are dropped, and may leave outputs out, which then count as not wanted.
        """
        rules = self._all_outputs
        if request.outputs and len(request.outputs) != len(rules):
            rules = [self._outputs[output.name] for output in request.outputs]
        outputs = response.outputs
        if len(outputs) != len(rules) or not are_named(outputs, rules):
            outputs = self._picked(request, response)
            rules = [self._outputs[tensor.name] for tensor in outputs]
        for index, tensor in enumerate(outputs):
            rule = rules[index]
            shape = tensor.shape
            if tensor.datatype is not rule.datatype or (
                shape[rule.batch_dims :] != rule.fixed_dims and not rule.fits(shape)
            ):
                self._check_odd(request, tensor, rule)
            if rule.batch_dims and (not shape or shape[0] != request.batch_size):
                self._note_rows(request, tensor, "has not one row for each item of a batch")

    def _note_rows(self, request: InferRequest, tensor: Tensor, why: str) -> None:
        """Have requests run alone from now on: `tensor` may not have a row for each item.

        If several were joined nobody could tell which rows are whose. A model that is lax gets them
        side by side, and answers each by itself.
        """
        if not self.is_lax and self._stop_joining is not None and self._stop_joining():
            why = f"output '{tensor.name}' {why}"
            self.joining = Joining("alone", why)
            log.warning(
                "model '%s' gave output '%s' with shape %s for a batch of %d: its requests run "
                "one by one from now on, never joined",
                self.name,
                tensor.name,
                list(tensor.shape),
                request.batch_size,
            )

    async def classify(self, request: InferRequest, response: InferResponse) -> None:
        """Replace the outputs of a checked `response` that are wanted as classes.

        Large outputs are classified in a thread. Raises InvalidRequest when there are too many.
        """
        outputs = wanted_of(request, response)
        tensors = []
        for output, tensor in zip(outputs, response.outputs, strict=True):
            if output.top_k:
                tensor = await self._classified(request, tensor, output.top_k)
            tensors.append(tensor)
        response.outputs = tensors

    async def _classified(self, request: InferRequest, tensor: Tensor, top_k: int) -> Tensor:
        batch_dims = self._batch_dims if self._has_batch(request, tensor) else 0
        work = partial(
            classified, tensor, top_k, self.labels.get(tensor.name, ()), batch_dims=batch_dims
        )
        count = prod(tensor.shape)
        class_count = min(count, prod(tensor.shape[:batch_dims]) * top_k)
        if count <= INLINE_ELEMENTS and class_count <= INLINE_CLASSES:
            return work()
        return await asyncio.to_thread(work)

    def _has_batch(self, request: InferRequest, tensor: Tensor) -> bool:
        """Tell whether the first dim of an output of a batching model is the batch.

        What a lax model gives may have too few dims: it is one entry, unless it has a row for each
        item of `request`.
        """
        shape = tensor.shape
        if len(shape) > len(self._outputs[tensor.name].dims):
            return True
        return len(shape) > 1 and shape[0] == request.batch_size

    def _check_odd(self, request: InferRequest, tensor: Tensor, rule: TensorRule) -> None:
        """Raise BackendFailed unless an output may differ from the configuration, as this does."""
        is_real = rule.is_declared and tensor.datatype is rule.datatype
        is_wrong = not (self.is_lax or self._finds_outputs or is_real) or (
            request.has_top_k
            and not is_classifiable(tensor.datatype)
            and any(one.name == tensor.name and one.top_k for one in request.outputs)
        )
        if self._finds_outputs and not is_wrong:
            self._find(tensor, rule)
            return
        if is_real and rule.batch_dims and len(tensor.shape) != len(rule.shape):
            self._note_rows(request, tensor, "has another number of dims than its file declares")
        if not is_wrong and tensor.name in self._warned_of:
            return
        source = "file declares" if is_real else "configuration says"
        what = (
            f"produced output '{tensor.name}' as {tensor.datatype.value} {list(tensor.shape)}, "
            f"its {source} {rule.datatype.value} {list(rule.shape)}"
        )
        if is_wrong:
            msg = f"model '{self.name}' {what}"
            raise BackendFailed(msg)
        self._warn_once(tensor.name, f"{what}: clients get it as it is")

    def _find(self, tensor: Tensor, rule: TensorRule) -> None:
        """Have metadata and configuration say of an output what its answer shows it to be.

        Dims in which later answers differ are variable.
        """
        shape, was_expected = tensor.shape[rule.batch_dims :], rule.is_expected
        if was_expected or len(shape) != len(rule.dims):
            dims = shape
        else:
            pairs = zip(shape, rule.dims, strict=True)
            dims = tuple([got if got == want else -1 for got, want in pairs])
        rule.datatype, rule.dims, rule.is_expected = tensor.datatype, dims, False
        rule.fixed_dims = None if -1 in dims else dims
        outputs = [
            replace(output, datatype=rule.datatype, dims=dims)
            if output.name == rule.name
            else output
            for output in self.config.output
        ]
        self.config = replace(self.config, output=tuple(outputs))

    def _warn_once(self, output: str, what: str) -> None:
        """Log, once per output, what is odd about it."""
        if output not in self._warned_of and len(self._warned_of) < MAX_WARNINGS:
            self._warned_of.add(output)
            log.warning("model '%s' %s", self.name, what)

    def _picked(self, request: InferRequest, response: InferResponse) -> list[Tensor]:
        """Put the outputs of `response` in order, drop those not asked for, and return the rest.

        An output not asked for by name may be missing if an optional input is, since it may depend
        on that; if the model is lax and no ensemble, any output may be missing.
        """
        got = {tensor.name: tensor for tensor in response.outputs}
        names = [output.name for output in request.outputs or self._all_outputs]
        if self.is_lax and len(got) < len(response.outputs):
            self._check_once(response, names)
        may_miss = not request.outputs and len(request.inputs) < len(self._inputs)
        if self.is_lax:
            may_miss = self.config.ensemble_scheduling is None
            for name in sorted(got.keys() - self._outputs.keys()):
                del got[name]
                self._warn_once(
                    name,
                    f"gave output '{name}', which its configuration does not have: nobody gets it",
                )
            if not self.config.decoupled:  # otherwise another answer may have the rest
                request.outputs = [output for output in request.outputs if output.name in got]
        if got.keys() - self._outputs.keys() or (not may_miss and set(names) - got.keys()):
            msg = f"model '{self.name}' gave outputs {quoted(got.keys())}, expected {quoted(names)}"
            raise BackendFailed(msg)
        response.outputs = [got[name] for name in names if name in got]
        return response.outputs

    def _check_once(self, response: InferResponse, names: list[str]) -> None:
        """Raise BackendFailed if one of the outputs `names` is given twice: which one is meant?"""
        given = [tensor.name for tensor in response.outputs]
        for name in names:
            if given.count(name) > 1:
                msg = f"model '{self.name}' gave output '{name}' twice"
                raise BackendFailed(msg)

    def _renamed(self, request: InferRequest) -> TensorRule:
        """Rename the one input of a request if the model accepts any name, and return its rule.

        Raises InvalidRequest otherwise.
        """
        rule = self._only
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
            request.inputs = [raw_input(request.inputs[0].data, self.name, rules)]
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
                f"input '{tensor.name}' for model '{self.name}' has shape "
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
                    f"output '{output.name}' already exists in request, model '{self.name}' gives "
                    f"each once"
                )
                raise InvalidRequest(msg)
            names[output.name] = output
        if not names.keys() <= self._outputs.keys():
            msg = (
                f"unexpected inference output {quoted(names.keys() - self._outputs.keys())} for "
                f"model '{self.name}', it gives {quoted(self._outputs)}"
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
