"""TensorrtBackend: runs TensorRT plans on the GPU they were built for."""

from collections.abc import Callable
from contextlib import closing
from types import ModuleType

from inferd.backends.tensorrt.device import Device, find_device
from inferd.backends.tensorrt.plan import PlanRun, TensorrtPlan, load_plan, tensorrt
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import ALLOW_NATIVE
from inferd.core.arrays import ArrayInstance
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.shared import Shared, fingerprint
from inferd.core.signature import check_config, complete_config
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig, Unsupported


class TensorrtBackend:
    """Runs .plan files. Each instance has its own context, stream and memory over one engine."""

    traits = Traits(is_bounded=True, joins=True)

    def __init__(
        self,
        find: Callable[[int], Device | None] = find_device,
        runtime: Callable[[], ModuleType] = tensorrt,
    ) -> None:
        self._find = find
        self._runtime = runtime
        self._plans: Shared[TensorrtPlan] = Shared(one_by_one=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. Raises Unsupported without a GPU."""
        # Any GPU will do to read metadata; where instances run is not known yet.
        with closing(self._device(config, 0)) as device:
            plan = self._plan(files, config, device, 0)
        completed = complete_config(config, plan.signature, plan.max_batch_size or 1)
        check_config(completed, plan.signature)
        return completed

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """See Backend.open. Raises Unsupported without a GPU."""
        if any(tensor.optional for tensor in config.input):
            raise InvalidConfig(f"model '{config.name}': a plan has no optional inputs")
        device = self._device(config, placement.device_id)
        try:
            plan = self._plan(files, config, device, placement.device_id)
            check_config(config, plan.signature)
            runs = PlanRun(plan, device, config)
        # Also if the load is interrupted: each retained context has to be released once.
        except BaseException:
            device.close()
            raise
        scalars = plan.signature.scalars(config)
        return ArrayInstance(config, files.version, runs.run, scalars=scalars, close=runs.close)

    def _device(self, config: ModelConfig, device_id: int) -> Device:
        device = self._find(device_id)
        if device is None:
            raise Unsupported(
                f"model '{config.name}' is a TensorRT plan: it needs an NVIDIA GPU and its driver, "
                f"and this machine shows no GPU {device_id}"
            )
        return device

    def _plan(
        self, files: ModelFiles, config: ModelConfig, device: Device, number: int
    ) -> TensorrtPlan:
        def load() -> TensorrtPlan:
            with device.current():
                return load_plan(self._import(config), files.file, config)

        # A model that may not run host code must not share an engine that was read with it allowed.
        key = fingerprint([files.file]), number, is_on(config, ALLOW_NATIVE)
        return self._plans.get(key, load)

    def _import(self, config: ModelConfig) -> ModuleType:
        try:
            return self._runtime()
        except ModuleNotFoundError as error:
            raise Unsupported(
                f"model '{config.name}': backend 'tensorrt' needs the Python package "
                f"'{error.name}': pip install 'inferd[tensorrt]'"
            ) from error
