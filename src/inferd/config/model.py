"""ModelConfig: what config.pbtxt says of one model, filled in and checked, never changed after.

Field names are those of Triton's model_config.proto (docs: model configuration).
"""

from dataclasses import dataclass, field

from inferd.tensor.dtype import DataType


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One input; `dims` exclude the batch dim, -1 is a variable dim."""

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """One output; `dims` exclude the batch dim, -1 is a variable dim."""

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    label_filename: str = ""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """`count` copies of the model on one kind of device."""

    name: str = ""
    count: int = 0
    kind: str = "KIND_AUTO"
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One execution accelerator, such as `tensorrt` or `openvino`, with its own parameters."""

    name: str
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Optimization:
    """What the framework may do to the graph, and the accelerators to try, best first."""

    graph_level: int = 0
    gpu_execution_accelerator: tuple[Accelerator, ...] = ()
    cpu_execution_accelerator: tuple[Accelerator, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of one model. `max_batch_size` > 0 puts a batch dim before all dims."""

    name: str
    platform: str = ""
    backend: str = ""
    max_batch_size: int = 0
    input: tuple[ModelInput, ...] = ()
    output: tuple[ModelOutput, ...] = ()
    instance_group: tuple[InstanceGroup, ...] = ()
    default_model_filename: str = ""
    decoupled: bool = False
    optimization: Optimization = field(default_factory=Optimization)
    parameters: dict[str, str] = field(default_factory=dict)
