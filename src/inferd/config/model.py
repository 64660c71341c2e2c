"""ModelConfig: what config.pbtxt says about one model, as objects that are never changed.

Field names are those of Triton's model_config.proto (docs: model configuration), and strings stand
for its enum values by name. Where the protocol wraps a single value in a message, the field here
holds the value itself; `inferd.config.message` wraps it again.
"""

from dataclasses import dataclass, field

from inferd.tensor.dtype import DataType

OURS = {"ours": True}
"""Marks fields that the protocol's messages do not have."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One input; `dims` exclude the batch dim, -1 is a variable dim.

    Requests have shape `dims`, the model gets `reshape` (None: the same). `allow_ragged_batch` lets
    requests of different shapes share a batch. `format` names the order of an image's dims.
    `is_unranked`: nobody says how many dims it has, so that it takes any.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False
    format: str = "FORMAT_NONE"
    allow_ragged_batch: bool = False
    is_shape_tensor: bool = False
    is_non_linear_format_io: bool = False
    # Not compared: two configurations that differ in what was guessed are the same to a reload.
    is_unranked: bool = field(default=False, compare=False, metadata=OURS)


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """One output; `dims` exclude the batch dim, -1 is a variable dim.

    The model returns shape `reshape` (None: the same), responses have `dims`. `label_filename` is
    a file in the model's folder with one label per line. `is_declared`: nobody wrote this output
    into the configuration, its dims are those that the model's file declares, which may be wrong.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    label_filename: str = ""
    is_shape_tensor: bool = False
    is_non_linear_format_io: bool = False
    is_declared: bool = field(default=False, compare=False, metadata=OURS)


@dataclass(frozen=True, slots=True)
class BatchInput:
    """Inputs that describe the batch, made from `source_input`; clients never send them."""

    kind: str = "BATCH_ELEMENT_COUNT"
    target_name: tuple[str, ...] = ()
    datatype: DataType | None = None
    source_input: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """Outputs that are split among the requests by their shapes of `source_input`."""

    kind: str = "BATCH_SCATTER_WITH_INPUT_SHAPE"
    target_name: tuple[str, ...] = ()
    source_input: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RateLimiterResource:
    """The `count` of a resource that must be free, per device or (`is_global`) over all devices."""

    name: str = ""
    is_global: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class RateLimiter:
    """What an instance needs before it may run; with priority p it gets 1/p of the turns."""

    resources: tuple[RateLimiterResource, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class SecondaryDevice:
    """A device the model uses in addition to the one it runs on."""

    kind: str = "KIND_NVDLA"
    device_id: int = 0


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """`count` copies of the model on one kind of device, on each of `gpus` if any are listed."""

    name: str = ""
    count: int = 0
    kind: str = "KIND_AUTO"
    gpus: tuple[int, ...] = ()
    profile: tuple[str, ...] = ()
    rate_limiter: RateLimiter | None = None
    passive: bool = False
    secondary_devices: tuple[SecondaryDevice, ...] = ()
    host_policy: str = ""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """One of: a number of `latest` versions, `all` versions, or `specific` ones."""

    latest: int | None = None
    all: bool = False
    specific: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One execution accelerator, such as `tensorrt` or `openvino`, with its own parameters."""

    name: str
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CudaGraphLowerBound:
    """The smallest request a CUDA graph serves: input name -> dims."""

    batch_size: int = 0
    input: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CudaGraphSpec:
    """The request a CUDA graph is recorded for: input name -> dims."""

    batch_size: int = 0
    input: dict[str, tuple[int, ...]] = field(default_factory=dict)
    graph_lower_bound: CudaGraphLowerBound | None = None


@dataclass(frozen=True, slots=True)
class Cuda:
    """Settings of GPU execution."""

    graphs: bool = False
    busy_wait_events: bool = False
    graph_spec: tuple[CudaGraphSpec, ...] = ()
    output_copy_stream: bool = False


@dataclass(frozen=True, slots=True)
class Optimization:
    """What the framework may do to the graph, and the accelerators to try, best first."""

    graph_level: int = 0
    gpu_execution_accelerator: tuple[Accelerator, ...] = ()
    cpu_execution_accelerator: tuple[Accelerator, ...] = ()
    priority: str = "PRIORITY_DEFAULT"
    cuda: Cuda | None = None
    input_pinned_memory: bool | None = None
    output_pinned_memory: bool | None = None
    gather_kernel_buffer_threshold: int = 0
    eager_batching: bool = False


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long and how many requests may wait. A `max_queue_size` of 0 sets no limit."""

    timeout_action: str = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """Requests are gathered into batches. Priority level 1 is the highest.

    `is_filled`: the configuration gave no preferred sizes; `is_adaptive`: no delay, either.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] = field(default_factory=dict)
    # Not compared, like is_filled: they follow from the other fields before filling in.
    is_adaptive: bool = field(default=False, compare=False, metadata=OURS)
    is_filled: bool = field(default=False, compare=False, metadata=OURS)


@dataclass(frozen=True, slots=True)
class Control:
    """One signal in a control tensor; boolean kinds have the values for false and true."""

    kind: str = "CONTROL_SEQUENCE_START"
    int32_false_true: tuple[int, ...] = ()
    fp32_false_true: tuple[float, ...] = ()
    bool_false_true: tuple[bool, ...] = ()
    datatype: DataType | None = None


CONTROL_TYPES = {
    "int32_false_true": DataType.INT32,
    "fp32_false_true": DataType.FP32,
    "bool_false_true": DataType.BOOL,
}
"""The fields of a Control with its two values, and the datatype that each implies."""


@dataclass(frozen=True, slots=True)
class ControlInput:
    """An input of the model that the sequence scheduler fills in."""

    name: str = ""
    control: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True)
class InitialState:
    """What a state holds before the first request: zeros, or a file in initial_state/."""

    name: str = ""
    datatype: DataType | None = None
    dims: tuple[int, ...] = ()
    zero_data: bool | None = None
    data_file: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceState:
    """An output of the model that becomes an input of the sequence's next request."""

    input_name: str = ""
    output_name: str = ""
    datatype: DataType | None = None
    dims: tuple[int, ...] = ()
    initial_state: tuple[InitialState, ...] = ()
    use_same_buffer_for_input_output: bool = False
    use_growable_memory: bool = False


@dataclass(frozen=True, slots=True)
class DirectStrategy:
    """Each sequence keeps a slot of one instance's batch to itself."""

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class OldestStrategy:
    """The next requests of the oldest sequences are batched dynamically."""

    max_candidate_sequences: int = 0
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """Requests of one sequence go to one instance, in order. At most one strategy is set."""

    max_sequence_idle_microseconds: int = 0
    control_input: tuple[ControlInput, ...] = ()
    direct: DirectStrategy | None = None
    oldest: OldestStrategy | None = None
    state: tuple[SequenceState, ...] = ()
    iterative_sequence: bool = False


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """A call of another model; the maps go from that model's tensors to the ensemble's.

    A `model_version` of -1 is the latest. One that is left out reads as 0 and asks for version 0.
    """

    model_name: str = ""
    model_version: int = 0
    input_map: dict[str, str] = field(default_factory=dict)
    output_map: dict[str, str] = field(default_factory=dict)
    model_namespace: str = ""


@dataclass(frozen=True, slots=True)
class EnsembleScheduling:
    """The model consists of calls of other models, in the order given by the data flow."""

    step: tuple[EnsembleStep, ...] = ()
    max_inflight_requests: int = 0


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up request: zeros, random numbers, or a file in warmup/."""

    datatype: DataType | None = None
    dims: tuple[int, ...] = ()
    zero_data: bool | None = None
    random_data: bool | None = None
    input_data_file: str | None = None


@dataclass(frozen=True, slots=True)
class Warmup:
    """Requests every instance runs, `count` times (0: once), before the model is ready."""

    name: str = ""
    batch_size: int = 0
    inputs: dict[str, WarmupInput] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True, slots=True)
class RepositoryAgent:
    """A plug-in that acts on the model's files when the model is loaded and unloaded."""

    name: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricControl:
    """The histogram buckets (`histogram_options`) of one metric family of this model."""

    metric_identifier: str | None = None
    histogram_options: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of one model. `max_batch_size` > 0 puts a batch dim before all dims.

    At most one of `dynamic_batching`, `sequence_batching` and `ensemble_scheduling` is set. `given`
    holds the paths of messages that were present and may be empty, so that they are written again.
    `is_unbatched`: a max_batch_size of 0 was written, not left out, so it is not filled in.
    `written` are the names of the fields that the model's file has, as protobuf knows them.
    """

    name: str
    platform: str = ""
    backend: str = ""
    runtime: str = ""
    version_policy: VersionPolicy | None = None
    max_batch_size: int = 0
    input: tuple[ModelInput, ...] = ()
    output: tuple[ModelOutput, ...] = ()
    batch_input: tuple[BatchInput, ...] = ()
    batch_output: tuple[BatchOutput, ...] = ()
    optimization: Optimization = field(default_factory=Optimization)
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    ensemble_scheduling: EnsembleScheduling | None = None
    instance_group: tuple[InstanceGroup, ...] = ()
    default_model_filename: str = ""
    cc_model_filenames: dict[str, str] = field(default_factory=dict)
    metric_tags: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    model_warmup: tuple[Warmup, ...] = ()
    model_operations: tuple[str, ...] = ()
    decoupled: bool = False
    model_repository_agents: tuple[RepositoryAgent, ...] = ()
    response_cache: bool = False
    model_metrics: tuple[MetricControl, ...] = ()
    # Not compared: it is how the same was written, and must not make a reload that changes nothing.
    given: frozenset[str] = field(default=frozenset(), compare=False, metadata=OURS)
    # Compared: 0 that was written and 0 that was left out load differently.
    is_unbatched: bool = field(default=False, metadata=OURS)
    written: frozenset[str] = field(default=frozenset(), compare=False, metadata=OURS)
