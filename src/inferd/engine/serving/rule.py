"""TensorRule: what a configuration says of one tensor, ready to be compared."""

from collections.abc import Iterable, Sequence

from inferd.config.model import ModelInput, ModelOutput
from inferd.core.request import WantedOutput
from inferd.tensor.tensor import Tensor

_BATCH = (-1,)


class TensorRule:
    """What the configuration says of one input or output, ready to be compared."""

    def __init__(self, declared: ModelInput | ModelOutput, batch_dims: int, bit: int = 0) -> None:
        self.name = declared.name
        self.datatype = declared.datatype
        self.dims = declared.dims
        self.batch_dims = batch_dims
        self.bit = bit
        # None never equals a slice of a shape, so one comparison serves fixed and variable dims.
        self.fixed_dims = None if -1 in declared.dims else declared.dims
        self.is_expected = False  # until the first answer shows what an output is
        self.is_unranked = isinstance(declared, ModelInput) and declared.is_unranked
        # The model's file may be wrong about the shape of an output.
        self.is_declared = isinstance(declared, ModelOutput) and declared.is_declared

    @property
    def shape(self) -> tuple[int, ...]:
        """The full shape as metadata shows it: -1 for the batch dim and for variable dims."""
        return _BATCH + self.dims if self.batch_dims else self.dims

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Tell whether `shape`, batch dim included, is one the configuration allows."""
        if len(shape) != len(self.dims) + self.batch_dims or self.is_expected:
            return False
        dims, at = self.dims, self.batch_dims
        for want in dims:  # this is compiled code, where all() and zip() would be calls
            got = shape[at]
            if got < 0 or (want != got and want != -1):
                return False
            at += 1
        return True


def are_named(outputs: Sequence[Tensor | WantedOutput], rules: Sequence[TensorRule]) -> bool:
    """Tell whether `outputs` have the names of equally many `rules`, in order; a hot loop."""
    for index, output in enumerate(outputs):  # noqa: SIM110  a generator would be slower
        if output.name != rules[index].name:
            return False
    return True


def quoted(names: Iterable[str]) -> str:
    """Return `names` as errors list them."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"
