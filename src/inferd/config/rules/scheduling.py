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
from inferd.config.names import is_inside
from inferd.config.rules.complaint import Complaint, ConfigField
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
    place = ConfigField(_DYNAMIC, (_DYNAMIC,))
    yield from _delay_complaints(place, dynamic.max_queue_delay_microseconds)
    yield from _preferred_complaints(config, place, dynamic.preferred_batch_size)
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
                text = f": {what} {level}, expected 1 to {levels}, the priority_levels"
                yield place.complaint(text, *field)
    # Answers cannot be in the order of arrival if requests overtake each other: by priority, or by
    # being put behind the others (DELAY).
    if dynamic.preserve_ordering:
        yield from _ordering_complaints(place, dynamic)


def _delay_complaints(place: ConfigField, delay_us: int) -> Iterator[Complaint]:
    if delay_us > MAX_DELAY_US:
        text = (
            f": max_queue_delay_microseconds is {delay_us}, at most {MAX_DELAY_US} "
            f"(an hour) may be: so long a request waits that nobody joins"
        )
        yield place.complaint(text, "max_queue_delay_microseconds")


def _ordering_complaints(place: ConfigField, dynamic: DynamicBatching) -> Iterator[Complaint]:
    if dynamic.priority_levels > 1:
        text = ": preserve_ordering allows only one of the priority_levels"
        yield place.complaint(text, "priority_levels")
    policies: list[tuple[FieldPath, QueuePolicy]]
    policies = [(("default_queue_policy",), dynamic.default_queue_policy or QueuePolicy())]
    policies += [
        (("priority_queue_policy", level), policy)
        for level, policy in dynamic.priority_queue_policy.items()
    ]
    for field, policy in policies:
        # Without a default timeout a request's own, which may only shorten it, has no effect.
        if policy.timeout_action == "DELAY" and policy.default_timeout_microseconds:
            text = ": preserve_ordering does not go with timeout_action DELAY"
            yield place.complaint(text, *field, "timeout_action")


def _preferred_complaints(
    config: ModelConfig, place: ConfigField, sizes: tuple[int, ...]
) -> Iterator[Complaint]:
    if config.max_batch_size < 0:
        return  # that is wrong enough
    for number, size in enumerate(sizes):
        if not 1 <= size <= config.max_batch_size:
            text = (
                f": preferred_batch_size {size} is not between 1 and "
                f"max_batch_size {config.max_batch_size}"
            )
            yield place.complaint(text, "preferred_batch_size", number)


def _sequence_complaints(config: ModelConfig, sequence: SequenceBatching) -> Iterator[Complaint]:
    yield from _control_name_complaints(sequence)
    for number, control_input in enumerate(sequence.control_input):
        for inner, control in enumerate(control_input.control):
            name = f"{_SEQUENCE}: control '{control_input.name}' of kind {control.kind}"
            path = (_SEQUENCE, "control_input", number, "control", inner)
            yield from _control_complaints(ConfigField(name, path), control)
    yield from _sequence_name_complaints(config, sequence)
    for number, state in enumerate(sequence.state):
        name = f"{_SEQUENCE}: state '{state.input_name}'"
        yield from _state_complaints(ConfigField(name, (_SEQUENCE, "state", number)), state)
    if (oldest := sequence.oldest) is not None:
        place = ConfigField(f"{_SEQUENCE}: oldest", (_SEQUENCE, "oldest"))
        count = oldest.max_candidate_sequences
        # 0 means as many as there are; a negative one would be no candidate at all.
        if count < 0:
            text = f": max_candidate_sequences is {count}, not 0 or more"
            yield place.complaint(text, "max_candidate_sequences")
        yield from _preferred_complaints(config, place, oldest.preferred_batch_size)
        yield from _delay_complaints(place, oldest.max_queue_delay_microseconds)
    if (direct := sequence.direct) is not None:
        place = ConfigField(f"{_SEQUENCE}: direct", (_SEQUENCE, "direct"))
        yield from _delay_complaints(place, direct.max_queue_delay_microseconds)
        share = direct.minimum_slot_utilization
        if not 0 <= share <= 1:
            text = f": minimum_slot_utilization is {share}, expected 0 to 1"
            yield place.complaint(text, "minimum_slot_utilization")


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


def _state_complaints(place: ConfigField, state: SequenceState) -> Iterator[Complaint]:
    if not state.input_name or not state.output_name:
        yield place.complaint(" needs an input_name and an output_name")
    if state.datatype is None:
        yield place.complaint(" has no data_type", "data_type")
    yield from rank_complaints(place, state.dims)
    # Memory for a state is reserved before the first request, so a dim of 0 would be none.
    if any(dim == 0 or dim < -1 for dim in state.dims):
        text = f" has dims {list(state.dims)}, expected positive numbers, or -1"
        yield place.complaint(text, "dims")
    if len(state.initial_state) > 1:
        text = f" has {len(state.initial_state)} entries initial_state, expected 1"
        yield place.complaint(text, "initial_state", len(state.initial_state) - 1)
    for number, initial in enumerate(state.initial_state):
        inner = ConfigField(f"{place.name}: initial_state", (*place.path, "initial_state", number))
        yield from _initial_complaints(inner, state, initial)


def _initial_complaints(
    place: ConfigField, state: SequenceState, initial: InitialState
) -> Iterator[Complaint]:
    yield from rank_complaints(place, initial.dims)
    if not initial.name:
        yield place.complaint(" has no name", "name")
    if initial.datatype is not state.datatype:
        text = f" has data_type {config_name(initial.datatype)}, the state has another"
        yield place.complaint(text, "data_type")
    # Here nothing is variable any more: zeros of -1 elements cannot be made.
    if not fits(state.dims, initial.dims) or any(dim < 1 for dim in initial.dims):
        text = f" has dims {list(initial.dims)}, the state has {list(state.dims)}"
        yield place.complaint(text, "dims")
    # protobuf's oneof may hold zero_data: false, which says nothing.
    if initial.data_file is None and not initial.zero_data:
        yield place.complaint(" needs zero_data or a data_file", "zero_data")
    if initial.data_file is not None and not is_inside(initial.data_file):
        text = f": data_file '{initial.data_file}' leads out of its folder"
        yield place.complaint(text, "data_file")


def _control_complaints(place: ConfigField, control: Control) -> Iterator[Complaint]:
    given = [field for field in CONTROL_TYPES if getattr(control, field)]
    # The id is passed as it is; the other kinds are signals, with a value for no and one for yes.
    if control.kind == _CORRELATION_ID:
        if given:
            yield place.complaint(f" cannot have {given[0]}", given[0])
        if control.datatype not in _CORRELATION_ID_TYPES:
            names = ", ".join(config_name(datatype) for datatype in _CORRELATION_ID_TYPES)
            text = f" has data_type {config_name(control.datatype)}, expected one of {names}"
            yield place.complaint(text, "data_type")
    elif len(given) != 1:
        found = " and ".join(given) or "none"
        text = f" needs exactly one of {', '.join(CONTROL_TYPES)}, it has {found}"
        yield place.complaint(text, *given[1:2])
    elif (count := len(getattr(control, given[0]))) != 2:
        text = f": {given[0]} has {count} entries, expected 2, for false and true"
        yield place.complaint(text, given[0])
