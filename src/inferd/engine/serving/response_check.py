"""ResponseCheck: whether a model's answers fit its configuration, and what clients get of them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import FOUND_OUTPUTS
from inferd.core.request import InferRequest, InferResponse, wanted_of
from inferd.engine.serving.rule import TensorRule, are_named, quoted
from inferd.errors import BackendFailed
from inferd.tensor.classification import Labels, classified, is_classifiable
from inferd.tensor.tensor import Tensor

log = logging.getLogger("inferd.model")

INLINE_ELEMENTS = 64 << 10
"""Outputs of more elements are classified in a thread, not on the event loop."""

INLINE_CLASSES = 8 << 10
"""Outputs of which more classes are wanted are classified in a thread, too."""

MAX_WARNINGS = 1000
"""The most outputs of a version that the log warns about."""


class ResponseCheck:
    """Checks the answers of one model version, which has rules for `outputs`, by name.

    What a model that `is_lax` gives may have other shapes and datatypes than its configuration
    says, and be more or less. `run_alone` has requests run alone from now on, for a reason; it
    returns whether that is new. `note_found` is given the rule of an output that an answer has
    shown to be other than it said.
    """

    def __init__(
        self,
        config: ModelConfig,
        outputs: Mapping[str, TensorRule],
        labels: Mapping[str, Labels],
        run_alone: Callable[[str], bool],
        note_found: Callable[[TensorRule], None],
    ) -> None:
        self.is_lax = False
        self._name = config.name
        # mypyc knows a dict better than a Mapping.
        self._outputs = dict(outputs)
        self._all_outputs = list(outputs.values())
        self._labels = labels
        self._run_alone = run_alone
        self._note_found = note_found
        self._input_count = len(config.input)
        self._is_ensemble = config.ensemble_scheduling is not None
        self._is_decoupled = config.decoupled
        self._batch_dims = 1 if config.max_batch_size > 0 else 0
        self._warned_of: set[str] = set()  # the outputs of which the log says that they are odd
        self._finds_outputs = is_on(config, FOUND_OUTPUTS)
        if self._finds_outputs:  # then the first answer decides what they are
            for output in self._all_outputs:
                output.is_expected, output.fixed_dims = True, None

    def check(self, request: InferRequest, response: InferResponse) -> None:
        """Check the model's answer to `request`, and keep the wanted outputs in the model's order.

        Raises BackendFailed: a model that breaks its own configuration is the server's fault. Dims
        that only its file declares do not bind it: exporters are often wrong about outputs. A
        lax model may give other shapes and datatypes, may give outputs that the configuration does
        not have, which are dropped, and may leave outputs out, which then count as not wanted.
        """
        rules = self._all_outputs
        # As many as there are: they are all, in order once checked.
        if request.outputs and len(request.outputs) != len(rules):
            rules = [self._outputs[output.name] for output in request.outputs]
        outputs = response.outputs
        if len(outputs) != len(rules) or not are_named(outputs, rules):
            outputs = self._picked(request, response)
            rules = [self._outputs[tensor.name] for tensor in outputs]
        for index, tensor in enumerate(outputs):
            rule = rules[index]
            shape = tensor.shape
            # Members of the enum are single, so identity is enough.
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
        if not self.is_lax and self._run_alone(f"output '{tensor.name}' {why}"):
            log.warning(
                "model '%s' gave output '%s' with shape %s for a batch of %d: its requests run "
                "one by one from now on, never joined",
                self._name,
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
            classified, tensor, top_k, self._labels.get(tensor.name, ()), batch_dims=batch_dims
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
        # Dims of the file alone do not bind, its datatype does
        # (docs/decisions/0033-declared-shapes.md).
        is_real = rule.is_declared and tensor.datatype is rule.datatype
        is_wrong = not (self.is_lax or self._finds_outputs or is_real) or (
            request.has_top_k
            and not is_classifiable(tensor.datatype)
            and any(one.name == tensor.name and one.top_k for one in request.outputs)
        )
        if self._finds_outputs and not is_wrong:
            self._find(tensor, rule)
            return
        # Another number of dims may hide the batch dim, so nobody knows whose rows are whose.
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
            raise BackendFailed(f"model '{self._name}' {what}")
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
        self._note_found(rule)

    def _warn_once(self, output: str, what: str) -> None:
        """Log, once per output, what is odd about it."""
        if output not in self._warned_of and len(self._warned_of) < MAX_WARNINGS:
            self._warned_of.add(output)
            log.warning("model '%s' %s", self._name, what)

    def _picked(self, request: InferRequest, response: InferResponse) -> list[Tensor]:
        """Put the outputs of `response` in order, drop those not asked for, and return the rest.

        An output not asked for by name may be missing if an optional input is, since it may depend
        on that; if the model is lax, any output may be missing.
        """
        got = {tensor.name: tensor for tensor in response.outputs}
        names = [output.name for output in request.outputs or self._all_outputs]
        if self.is_lax and len(got) < len(response.outputs):
            self._check_once(response, names)
        may_miss = not request.outputs and len(request.inputs) < self._input_count
        if self.is_lax:
            may_miss = True
            for name in sorted(got.keys() - self._outputs.keys()):
                del got[name]
                self._warn_once(
                    name,
                    f"gave output '{name}', which its configuration does not have: nobody gets it",
                )
            if not self._is_decoupled:  # otherwise another answer may have the rest
                request.outputs = [output for output in request.outputs if output.name in got]
            if not (self._is_decoupled and request.outputs):
                names = self._given_order(request, names, got)
        if got.keys() - self._outputs.keys() or (not may_miss and set(names) - got.keys()):
            raise BackendFailed(
                f"model '{self._name}' gave outputs {quoted(got.keys())}, expected {quoted(names)}"
            )
        response.outputs = [got[name] for name in names if name in got]
        return response.outputs

    def _given_order(
        self, request: InferRequest, names: list[str], got: Mapping[str, Tensor]
    ) -> list[str]:
        """Return those of `names` that a lax model gave, as it ordered them, as Triton does.

        Clients of such a model may read outputs by their position. The wanted outputs of `request`
        get the same order. An ensemble has the order of its configuration.
        """
        # Mostly, models give what their configuration has, in its order.
        if self._is_ensemble or names == [*got]:
            return names
        wanted = {output.name: output for output in request.outputs}
        names = [name for name in got if name in names]
        if wanted:
            request.outputs = [wanted[name] for name in names]
        return names

    def _check_once(self, response: InferResponse, names: list[str]) -> None:
        """Raise BackendFailed if one of the outputs `names` is given twice: which one is meant?"""
        given = [tensor.name for tensor in response.outputs]
        for name in names:
            if given.count(name) > 1:
                raise BackendFailed(f"model '{self._name}' gave output '{name}' twice")
