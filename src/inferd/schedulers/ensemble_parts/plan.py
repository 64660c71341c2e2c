"""EnsemblePlan: the steps of an ensemble in data-flow order, checked against the models they call.

A tensor of an ensemble is written once, by a client or by an output of a step, and read by any
number of steps. Everything here is worked out when the ensemble is loaded; errors show the path
that the data would take (Triton, Ensemble Models).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from inferd.config.model import EnsembleStep, ModelConfig, ModelInput, ModelOutput
from inferd.core.request import WantedOutput
from inferd.core.signature import is_unranked
from inferd.errors import FieldPath, InvalidConfig
from inferd.tensor.dtype import DataType

Shape = tuple[int, ...]


class BatchDim:
    """What happens to the shape of a tensor on its way to a reader with `dims`, batch dim apart.

    Triton's rules (core, ensemble scheduler): two ends of a tensor fit if their dims agree without
    their batch dims, or if their full shapes do. In the first case a tensor gets a batch dim of 1,
    or loses it; in the second it passes as it is. Which case it is shows the tensor itself, since
    its number of dims may be another than the configurations say. A batch of several items is never
    cut: a model without a batch dim that takes one item refuses it, by its shape.

    `adds` says that the reader batches and the writer does not; otherwise it is the other way.
    """

    def __init__(self, dims: Shape, *, adds: bool) -> None:
        self.dims = dims
        self.adds = adds

    def of(self, shape: Shape) -> Shape:
        """Return `shape` as the reader takes it, or as it is if that cannot be."""
        # Ambiguous shapes are taken as items: the dims without batch dim are what the configuration
        # says.
        is_item = agree(self.dims, shape)
        if self.adds:
            return (1, *shape) if is_item else shape
        # Only a batch of one can lose its dim; others are refused by the reader, by shape.
        return shape[1:] if not is_item and shape[:1] == (1,) else shape


def agree(one: Shape, other: Shape) -> bool:
    """Return whether a tensor can have both shapes; -1 is any size."""
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )


LATEST = -1
"""The model_version that leaves the choice to the server."""

_STEPS = ("ensemble_scheduling", "step")

# Generators nest as deep, and each such step multiplies the answers.
MAX_DECOUPLED = 16
"""How many decoupled steps may follow each other."""


class Step(NamedTuple):
    """A call of another model, the `number`th of the configuration; version "" is the latest.

    `inputs` are pairs of the model's input name and the ensemble's tensor name, `outputs` map the
    model's output names to tensor names. `wanted` asks for just these outputs; [] means all of the
    model's outputs. `depth` counts the decoupled steps that its inputs come through. `batch_dims`
    has the inputs, by their names in the model, that may get or lose a batch dim on their way.
    """

    number: int
    model: str
    version: str
    inputs: tuple[tuple[str, str], ...]
    outputs: dict[str, str]
    wanted: list[WantedOutput]
    is_decoupled: bool
    depth: int = 0
    batch_dims: Mapping[str, BatchDim] = MappingProxyType({})

    def __str__(self) -> str:
        """Name it in a message."""
        return f"step {self.number} (model '{self.model}')"


class Stage(NamedTuple):
    """Steps that run once per answer of the previous stage, and the step that then streams."""

    steps: tuple[Step, ...]
    decoupled: Step | None


class StepOrder:
    """Which of `steps` may start: those in `first`, and those `after` a step that has ended."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._readers: dict[str, list[Step]] = {
            tensor: [] for step in steps for tensor in step.outputs.values()
        }
        self._missing: dict[int, int] = {}
        for step in steps:
            missing = [
                name for name in {outer for _, outer in step.inputs} if name in self._readers
            ]
            self._missing[step.number] = len(missing)
            for name in missing:
                self._readers[name].append(step)
        self.first = [step for step in steps if not self._missing[step.number]]

    def after(self, step: Step) -> list[Step]:
        """Return the steps that `step`, which has ended, makes ready; called once per step."""
        ready = []
        for tensor in step.outputs.values():
            for reader in self._readers[tensor]:
                self._missing[reader.number] -= 1
                if not self._missing[reader.number]:
                    ready.append(reader)
        return ready


class _End(NamedTuple):
    """One end of a tensor's path: an input or output of the ensemble or of a step.

    `is_batched` says whether a batch dim comes before its `dims`. Of one that `is_open` nobody says
    how many dims it has: what fits it shows when it runs.
    """

    place: str
    name: str
    datatype: DataType
    dims: Shape
    is_batched: bool
    step: int | None = None
    is_open: bool = False

    @property
    def shape(self) -> Shape:
        return (-1, *self.dims) if self.is_batched else self.dims

    def __str__(self) -> str:
        return f"{self.place} '{self.name}', {self.datatype.value} {list(self.shape)}"


class EnsemblePlan:
    """The steps to run for a request to the ensemble; `steps` are in topological order.

    `config` is the ensemble's; `models` are the configurations of the called models, one per step.
    If the plan `is_chain`, each step reads from the one before it, so there is never a choice of
    what runs; the same holds for the steps that are `needed` and for each of the `stages`.
    config/checks.py has checked that each tensor is written once and is read. Raises InvalidConfig
    when the models do not fit together.
    """

    def __init__(self, config: ModelConfig, models: Sequence[ModelConfig]) -> None:
        assert config.ensemble_scheduling is not None
        self.name = config.name
        self.max_inflight_requests = config.ensemble_scheduling.max_inflight_requests
        self.input_reshapes = _reshapes(config.input)
        self.output_reshapes = _reshapes(config.output)
        self.outputs = [output.name for output in config.output]
        steps = enumerate(config.ensemble_scheduling.step)
        called = [
            _step(number, step, model) for (number, step), model in zip(steps, models, strict=True)
        ]
        self._writers: dict[str, _End] = {}
        self._readers: dict[str, list[_End]] = {}
        for given in config.input:
            self._writers[given.name] = _end("the ensemble's input", given, config)
        for step, model in zip(called, models, strict=True):
            self._join(config, step, model)
        for wanted in config.output:
            end = _end("the ensemble's output", wanted, config)
            self._readers.setdefault(wanted.name, []).append(end)
        batch_dims: dict[int | None, dict[str, BatchDim]] = {}
        for tensor, readers in self._readers.items():
            for reader in readers:
                batch_dim = self._check_way(tensor, reader, is_batched=config.max_batch_size > 0)
                if batch_dim is not None:
                    batch_dims.setdefault(reader.step, {})[reader.name] = batch_dim
        self.output_batch_dims = batch_dims.get(None, {})
        called = [step._replace(batch_dims=batch_dims.get(step.number, {})) for step in called]
        self.steps = self._with_depths(self._in_order(called))
        self.is_chain = all(map(_reads, self.steps[1:], self.steps))

    def needed(self, outputs: Sequence[WantedOutput]) -> Sequence[Step]:
        """Return the steps that `outputs` depend on, in order; all of them if none is named."""
        # Clients mostly name all outputs, or none.
        if not outputs or len(outputs) == len(self.outputs):
            return self.steps
        wanted = {output.name for output in outputs}
        found = []
        # Topological order backwards: each step is looked at after all its readers.
        for step in reversed(self.steps):
            if not wanted.isdisjoint(step.outputs.values()):
                found.append(step)
                wanted.update(outer for _, outer in step.inputs)
        return found[::-1]

    def stages(self, steps: Sequence[Step]) -> list[Stage]:
        """Return `steps` cut after each decoupled one; the last stage has no decoupled step."""
        stages = []
        for depth in range(1 + sum(step.is_decoupled for step in steps)):
            here = [step for step in steps if step.depth == depth]
            plain = tuple(step for step in here if not step.is_decoupled)
            stages.append(Stage(plain, next((s for s in here if s.is_decoupled), None)))
        return stages

    def _join(self, config: ModelConfig, step: Step, model: ModelConfig) -> None:
        """Note `step`, which calls `model`, as a reader and the writer of tensors."""
        inputs = {one.name: one for one in model.input}
        for inner, outer in step.inputs:
            if inner not in inputs:
                text = f"{step}, which is to read '{outer}', has no input '{inner}'"
                self._refuse(text, *_STEPS, step.number, "input_map", inner)
            end = _end(f"{step} input", inputs.pop(inner), model, step.number)
            self._readers.setdefault(outer, []).append(end)
        # What the map did not take out.
        for one in inputs.values():
            if not one.optional:
                text = f"{step} needs input '{one.name}', its input_map has none"
                self._refuse(text, *_STEPS, step.number, "input_map")
        outputs = {one.name: one for one in model.output}
        for inner, outer in step.outputs.items():
            if inner not in outputs:
                text = f"{step}, which is to write '{outer}', has no output '{inner}'"
                self._refuse(text, *_STEPS, step.number, "output_map", inner)
            self._writers[outer] = _end(f"{step} output", outputs[inner], model, step.number)
        # A model without batch dim gets items one by one, by its own shape; a larger batch would be
        # refused at run time.
        if 0 < model.max_batch_size < config.max_batch_size:
            text = (
                f"max_batch_size is {config.max_batch_size}, but {step} takes batches of at most "
                f"{model.max_batch_size}"
            )
            self._refuse(text, "max_batch_size")

    def _check_way(self, tensor: str, reader: _End, *, is_batched: bool) -> BatchDim | None:
        """Check that `reader` can read `tensor`; return what may become of its batch dim."""
        writer = self._writers[tensor]
        way = f"{writer} → tensor '{tensor}' → {reader}"
        if writer.datatype is not reader.datatype:
            self._refuse(f"datatypes differ: {way}", *self._path_of(reader))
        is_open = writer.is_open or reader.is_open
        if not (is_open or agree(writer.dims, reader.dims) or agree(writer.shape, reader.shape)):
            hint = "" if is_batched else "; the ensemble has no batch dim, its max_batch_size is 0"
            self._refuse(f"shapes do not fit: {way}{hint}", *self._path_of(reader))
        if writer.is_batched is reader.is_batched:
            return None
        return BatchDim(reader.dims, adds=reader.is_batched)

    def _in_order(self, called: Sequence[Step]) -> list[Step]:
        """Return the steps sorted so that each comes after those it reads from."""
        order = StepOrder(called)
        ordered = list(order.first)
        for step in ordered:  # the list grows meanwhile
            ordered += order.after(step)
        if len(ordered) < len(called):
            ended = {step.number for step in ordered}
            circle = self._circle([step for step in called if step.number not in ended])
            self._refuse(f"its steps wait for each other: {circle}", *_STEPS)
        return ordered

    def _circle(self, waiting: Sequence[Step]) -> str:
        """Return one cycle among the steps `waiting`, each of which waits for another, as text."""
        writers = {outer: step for step in waiting for outer in step.outputs.values()}
        way: list[Step] = []
        drawn: list[str] = []
        step = waiting[0]
        while step not in way:  # go back from a step to one that it waits for
            way.append(step)
            tensor = next(outer for _, outer in step.inputs if outer in writers)
            drawn.append(f"{step} → ")
            step = writers[tensor]
            drawn.append(f"'{tensor}' → ")
        circle = drawn[2 * way.index(step) :]
        return "".join((f"{step} → ", *reversed(circle))).removesuffix(" → ")

    def _with_depths(self, ordered: Sequence[Step]) -> tuple[Step, ...]:
        """Return the steps with their depths; no two decoupled ones may answer side by side."""
        ways: dict[str, tuple[str, ...]] = {}
        steps = []
        for step in ordered:
            way = self._common_way(str(step), (outer for _, outer in step.inputs), ways)
            steps.append(step._replace(depth=len(way)))
            after = (*way, str(step)) if step.is_decoupled else way
            if len(after) > MAX_DECOUPLED:
                text = f"more than {MAX_DECOUPLED} decoupled steps come after each other"
                self._refuse(text, *_STEPS, step.number)
            ways |= dict.fromkeys(step.outputs.values(), after)
        self._common_way("the answer", self.outputs, ways)
        return tuple(steps)

    def _common_way(
        self, what: str, tensors: Iterable[str], ways: dict[str, tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the decoupled steps on the longest path to `tensors`.

        All other paths must be prefixes of it.
        """
        longest: tuple[str, ...] = ()
        for way in (ways.get(tensor, ()) for tensor in tensors):
            shorter, longer = sorted((longest, way), key=len)
            # Paths that part at a decoupled step have different numbers of answers, and no rule
            # says which belong together.
            if longer[: len(shorter)] != shorter:
                msg = f"{what} is made from two decoupled models: {longest[-1]} and {way[-1]}"
                self._refuse(f"{msg}, whose answers do not belong together", *_STEPS)
            longest = longer
        return longest

    def _path_of(self, reader: _End) -> FieldPath:
        if reader.step is not None:
            return (*_STEPS, reader.step, "input_map", reader.name)
        return "output", self.outputs.index(reader.name)

    def _refuse(self, what: str, *path: str | int) -> NoReturn:
        raise InvalidConfig(f"ensemble '{self.name}': {what}", path)


def _step(number: int, step: EnsembleStep, model: ModelConfig) -> Step:
    version = "" if step.model_version == LATEST else str(step.model_version)
    # In the model's own order, so that the check of a request need not sort them.
    wanted = [WantedOutput(one.name) for one in model.output if one.name in step.output_map]
    # All by name is the same as none by name, and needs no check.
    if len(wanted) == len(model.output):
        wanted = []
    # In its order, too: a map of protobuf has another one each start, and models may take inputs by
    # their place. A name the model does not have is refused later.
    places = {one.name: place for place, one in enumerate(model.input)}
    inputs = tuple(sorted(step.input_map.items(), key=lambda pair: places.get(pair[0], -1)))
    return Step(number, step.model_name, version, inputs, step.output_map, wanted, model.decoupled)


def _reads(step: Step, other: Step) -> bool:
    """Return whether `step` reads a tensor that `other` writes."""
    written = other.outputs.values()
    return any(outer in written for _, outer in step.inputs)


def _end(
    place: str, tensor: ModelInput | ModelOutput, config: ModelConfig, step: int | None = None
) -> _End:
    """Return the end for `tensor` of `config`, with the ensemble's reshape."""
    is_own = step is None
    # The model of a step has its own reshape, which its own requests pass through; the ensemble has
    # no model for that.
    dims = tensor.reshape if is_own and tensor.reshape is not None else tensor.dims
    is_batched, is_open = config.max_batch_size > 0, is_unranked(tensor)
    return _End(place, tensor.name, tensor.datatype, dims, is_batched, step, is_open)


def _reshapes(tensors: Sequence[ModelInput | ModelOutput]) -> dict[str, tuple[Shape, Shape]]:
    return {one.name: (one.dims, one.reshape) for one in tensors if one.reshape is not None}
