"""Rules for batching, sequences and the response cache of a configuration."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from inferd.config.model import (
    CONTROL_TYPES,
    Control,
    DynamicBatching,
    InitialState,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    SequenceState,
)
from inferd.config.rules.complaint import Complaint
from inferd.config.rules.inside import is_inside
from inferd.config.rules.tensors import config_name, rank_complaints
from inferd.errors import FieldPath
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import fits

MAX_DELAY_US = 3_600_000_000
"""An hour: a request that no other joins waits for the whole delay."""

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"
# Triton's; the last is for ids that are texts.
_CORRELATION_ID_TYPES = (
    DataType.UINT64,
    DataType.INT64,
    DataType.UINT32,
    DataType.INT32,
    DataType.BYTES,
)
_DYNAMIC = "dynamic_batching"
_SEQUENCE = "sequence_batching"


def batching_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield what is wrong with how requests are joined."""
    if config.max_batch_size < 0:
        text = f"max_batch_size is {config.max_batch_size}, expected 0 or more"
        yield Complaint(text, ("max_batch_size",))
    choices = (_DYNAMIC, _SEQUENCE, "ensemble_scheduling")
    given = [choice for choice in choices if getattr(config, choice) is not None]
    # protobuf's oneof holds one of them; two come only from a configuration made in Python.
    if len(given) > 1:
        yield Complaint(f"{given[1]} cannot be given beside {given[0]}", (given[1],))
    if config.dynamic_batching is not None:
        yield from _dynamic_complaints(config, config.dynamic_batching)
    if config.sequence_batching is not None:
        yield from _sequence_complaints(config, config.sequence_batching)


def cache_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield why answers cannot be cached."""
    if not config.response_cache:
        return
    # An answer depends on what came before in its sequence, which the cache's key does not have.
    if config.sequence_batching is not None:
        yield Complaint("response_cache does not go with sequence_batching", ("response_cache",))
    # The cache keeps one answer for a request, and a decoupled model gives any number.
    if config.decoupled:
        text = "response_cache does not go with a decoupled model_transaction_policy"
        yield Complaint(text, ("response_cache",))


def _dynamic_complaints(config: ModelConfig, dynamic: DynamicBatching) -> Iterator[Complaint]:
    path: FieldPath = (_DYNAMIC,)
    yield from _delay_complaints(_DYNAMIC, path, dynamic.max_queue_delay_microseconds)
    yield from _preferred_complaints(config, _DYNAMIC, path, dynamic.preferred_batch_size)
    levels = dynamic.priority_levels
    # Without levels, Triton leaves aside what is said of priorities.
    if levels:
        usual = dynamic.default_priority_level
        named: list[tuple[str, int, FieldPath]]
        named = [("default_priority_level is", usual, ("default_priority_level",))]
        named += [
            ("priority_queue_policy has level", one, ("priority_queue_policy", one))
            for one in dynamic.priority_queue_policy
        ]
        for what, level, field in named:
            if not 1 <= level <= levels:
                where = f"expected 1 to {levels}, the priority_levels"
                yield Complaint(f"{_DYNAMIC}: {what} {level}, {where}", (*path, *field))
    # Answers cannot be in the order of arrival if requests overtake each other: by priority, or by
    # being put behind the others (DELAY).
    if dynamic.preserve_ordering:
        yield from _ordering_complaints(dynamic)


def _delay_complaints(place: str, path: FieldPath, delay_us: int) -> Iterator[Complaint]:
    if delay_us > MAX_DELAY_US:
        text = (
            f"{place}: max_queue_delay_microseconds is {delay_us}, at most {MAX_DELAY_US} "
            f"(an hour) may be: so long a request waits that nobody joins"
        )
        yield Complaint(text, (*path, "max_queue_delay_microseconds"))


def _ordering_complaints(dynamic: DynamicBatching) -> Iterator[Complaint]:
    if dynamic.priority_levels > 1:
        text = f"{_DYNAMIC}: preserve_ordering allows only one of the priority_levels"
        yield Complaint(text, (_DYNAMIC, "priority_levels"))
    policies: list[tuple[FieldPath, QueuePolicy]]
    policies = [(("default_queue_policy",), dynamic.default_queue_policy or QueuePolicy())]
    policies += [
        (("priority_queue_policy", level), policy)
        for level, policy in dynamic.priority_queue_policy.items()
    ]
    for field, policy in policies:
        # Without a default timeout a request's own, which may only shorten it, has no effect.
        if policy.timeout_action == "DELAY" and policy.default_timeout_microseconds:
            text = f"{_DYNAMIC}: preserve_ordering does not go with timeout_action DELAY"
            yield Complaint(text, (_DYNAMIC, *field, "timeout_action"))


def _preferred_complaints(
    config: ModelConfig, place: str, path: FieldPath, sizes: tuple[int, ...]
) -> Iterator[Complaint]:
    if config.max_batch_size < 0:
        return  # that is wrong enough
    for number, size in enumerate(sizes):
        if not 1 <= size <= config.max_batch_size:
            text = (
                f"{place}: preferred_batch_size {size} is not between 1 and "
                f"max_batch_size {config.max_batch_size}"
            )
            yield Complaint(text, (*path, "preferred_batch_size", number))


def _sequence_complaints(config: ModelConfig, sequence: SequenceBatching) -> Iterator[Complaint]:
    path: FieldPath
    yield from _control_name_complaints(sequence)
    for number, control_input in enumerate(sequence.control_input):
        for inner, control in enumerate(control_input.control):
            path = (_SEQUENCE, "control_input", number, "control", inner)
            yield from _control_complaints(path, control_input.name, control)
    yield from _sequence_name_complaints(config, sequence)
    for number, state in enumerate(sequence.state):
        yield from _state_complaints((_SEQUENCE, "state", number), state)
    if sequence.oldest is not None:
        place, path = f"{_SEQUENCE}: oldest", (_SEQUENCE, "oldest")
        count = sequence.oldest.max_candidate_sequences
        # 0 means as many as there are; a negative one would be no candidate at all.
        if count < 0:
            text = f"{place}: max_candidate_sequences is {count}, not 0 or more"
            yield Complaint(text, (*path, "max_candidate_sequences"))
        sizes = sequence.oldest.preferred_batch_size
        yield from _preferred_complaints(config, place, path, sizes)
        delay_us = sequence.oldest.max_queue_delay_microseconds
        yield from _delay_complaints(place, path, delay_us)
    if sequence.direct is not None:
        place, path = f"{_SEQUENCE}: direct", (_SEQUENCE, "direct")
        yield from _delay_complaints(place, path, sequence.direct.max_queue_delay_microseconds)
        share = sequence.direct.minimum_slot_utilization
        if not 0 <= share <= 1:
            text = f"{place}: minimum_slot_utilization is {share}, expected 0 to 1"
            yield Complaint(text, (*path, "minimum_slot_utilization"))


def _control_name_complaints(sequence: SequenceBatching) -> Iterator[Complaint]:
    tensors, path = sequence.control_input, (_SEQUENCE, "control_input")
    nameless = [number for number, tensor in enumerate(tensors) if not tensor.name]
    if nameless:
        yield Complaint(f"{_SEQUENCE}: a control_input has no name", (*path, nameless[0]))
    # One kind per tensor and one tensor per kind: a duplicate leaves open which one is meant.
    places = [
        (number, inner) for number, t in enumerate(tensors) for inner in range(len(t.control))
    ]
    names = [(tensors[number].name, (*path, number)) for number, _ in places]
    for name, count, last in _repeated(names):
        text = f"{_SEQUENCE}: control '{name}' has {count} kinds, expected 1"
        yield Complaint(text, last)
    kinds = [
        (tensors[number].control[inner].kind, (*path, number, "control", inner))
        for number, inner in places
    ]
    for kind, count, last in _repeated(kinds):
        text = f"{_SEQUENCE}: {count} control tensors have the kind {kind}, expected 1"
        yield Complaint(text, last)


def _sequence_name_complaints(
    config: ModelConfig, sequence: SequenceBatching
) -> Iterator[Complaint]:
    given: list[tuple[str, FieldPath]]
    given = [(tensor.name, ("input", number)) for number, tensor in enumerate(config.input)]
    given += [
        (tensor.name, (_SEQUENCE, "control_input", number))
        for number, tensor in enumerate(sequence.control_input)
        if tensor.name
    ]
    given += [
        (state.input_name, (_SEQUENCE, "state", number, "input_name"))
        for number, state in enumerate(sequence.state)
        if state.input_name
    ]
    # The model sees one tensor of each name, so that two sources of it would overwrite each other.
    for name, count, last in _repeated(given):
        text = f"{_SEQUENCE}: '{name}' names {count} inputs, controls or states, not 1"
        yield Complaint(text, last)
    outputs = [
        (state.output_name, (_SEQUENCE, "state", number, "output_name"))
        for number, state in enumerate(sequence.state)
    ]
    for name, count, last in _repeated(outputs):
        text = f"{_SEQUENCE}: {count} states have the output_name '{name}', expected 1"
        yield Complaint(text, last)


def _repeated(names: Iterable[tuple[str, FieldPath]]) -> Iterator[tuple[str, int, FieldPath]]:
    """Yield the names that are there more than once, how often they are, and the last place."""
    places: dict[str, list[FieldPath]] = defaultdict(list)
    for name, path in names:
        places[name].append(path)
    for name, paths in places.items():
        if len(paths) > 1:
            yield name, len(paths), paths[-1]


def _state_complaints(path: FieldPath, state: SequenceState) -> Iterator[Complaint]:
    place = f"{_SEQUENCE}: state '{state.input_name}'"
    if not state.input_name or not state.output_name:
        yield Complaint(f"{place} needs an input_name and an output_name", path)
    if state.datatype is None:
        yield Complaint(f"{place} has no data_type", (*path, "data_type"))
    yield from rank_complaints(place, (*path, "dims"), state.dims)
    # Memory for a state is reserved before the first request, so a dim of 0 would be none.
    if any(dim == 0 or dim < -1 for dim in state.dims):
        text = f"{place} has dims {list(state.dims)}, expected positive numbers, or -1"
        yield Complaint(text, (*path, "dims"))
    if len(state.initial_state) > 1:
        text = f"{place} has {len(state.initial_state)} entries initial_state, expected 1"
        yield Complaint(text, (*path, "initial_state", len(state.initial_state) - 1))
    for number, initial in enumerate(state.initial_state):
        yield from _initial_complaints(place, (*path, "initial_state", number), state, initial)


def _initial_complaints(
    place: str, path: FieldPath, state: SequenceState, initial: InitialState
) -> Iterator[Complaint]:
    place += ": initial_state"
    yield from rank_complaints(place, (*path, "dims"), initial.dims)
    if not initial.name:
        yield Complaint(f"{place} has no name", (*path, "name"))
    if initial.datatype is not state.datatype:
        text = f"{place} has data_type {config_name(initial.datatype)}, the state has another"
        yield Complaint(text, (*path, "data_type"))
    # Here nothing is variable any more: zeros of -1 elements cannot be made.
    if not fits(state.dims, initial.dims) or any(dim < 1 for dim in initial.dims):
        text = f"{place} has dims {list(initial.dims)}, the state has {list(state.dims)}"
        yield Complaint(text, (*path, "dims"))
    # protobuf's oneof may hold zero_data: false, which says nothing.
    if initial.data_file is None and not initial.zero_data:
        yield Complaint(f"{place} needs zero_data or a data_file", (*path, "zero_data"))
    if initial.data_file is not None and not is_inside(initial.data_file):
        text = f"{place}: data_file '{initial.data_file}' leads out of its folder"
        yield Complaint(text, (*path, "data_file"))


def _control_complaints(path: FieldPath, name: str, control: Control) -> Iterator[Complaint]:
    place = f"{_SEQUENCE}: control '{name}' of kind {control.kind}"
    given = [field for field in CONTROL_TYPES if getattr(control, field)]
    # The id is passed as it is; the other kinds are signals, with a value for no and one for yes.
    if control.kind == _CORRELATION_ID:
        if given:
            yield Complaint(f"{place} cannot have {given[0]}", (*path, given[0]))
        if control.datatype not in _CORRELATION_ID_TYPES:
            names = ", ".join(config_name(datatype) for datatype in _CORRELATION_ID_TYPES)
            kind = config_name(control.datatype)
            text = f"{place} has data_type {kind}, expected one of {names}"
            yield Complaint(text, (*path, "data_type"))
    elif len(given) != 1:
        found = " and ".join(given) or "none"
        text = f"{place} needs exactly one of {', '.join(CONTROL_TYPES)}, it has {found}"
        yield Complaint(text, (*path, *given[1:2]))
    elif (count := len(getattr(control, given[0]))) != 2:
        text = f"{place}: {given[0]} has {count} entries, expected 2, for false and true"
        yield Complaint(text, (*path, given[0]))
