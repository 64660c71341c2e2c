"""LoadedModel: a model of any of these libraries: what it takes, and what it can compute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_number
from inferd.core.rows import Verdict
from inferd.errors import BackendFailed, foreign_text
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

Columns = Mapping[str, Array]
"""Column name -> its values, shape [rows]; texts are an object array of `str`."""

PREDICT, PROBABILITY, LOG_PROBABILITY = "predict", "predict_proba", "predict_log_proba"
"""The names of outputs, those of the methods of scikit-learn."""

THREADS = "num_threads"
"""The config parameter with the number of threads of an execution: 1, unless it is given; 0 leaves
the choice to the library."""

_MOST_THREADS = 4096


class Method(NamedTuple):
    """One output: what `call` computes for the rows, as the library gives it.

    `datatype` and `dims` (without those of the rows) are what is known of it before it has run; -1
    is an unknown dim.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    call: Callable[[Any], Any]


class Features(NamedTuple):
    """What a model says of its columns: how many (`width`, None if nothing), and `names` (or ()).

    With `are_texts` it takes one text in each row, in an array of one dim. Columns without names
    are called `counted` by the library, followed by their numbers from 0.
    """

    width: int | None = None
    names: tuple[str, ...] = ()
    are_texts: bool = False
    counted: str = ""


@dataclass(frozen=True)
class LoadedModel:
    """A model that its library has loaded.

    `rows` and `table` return what the calls of `outputs` take: made of one array of shape
    [rows, ...], or of columns in the model's order. They, and the calls, raise one of `faults` for
    rows that the model does not take. `origin` is the library's own object.
    """

    outputs: Mapping[str, Method]
    features: Features
    rows: Callable[[Array], Any]
    table: Callable[[Columns], Any]
    faults: tuple[type[Exception], ...]
    verdict: Verdict
    origin: Any


class Unreadable(BackendFailed):
    """A library does not read the file."""

    def __init__(self, file: Path, error: Exception) -> None:
        super().__init__(f"'{file.name}' cannot be loaded: {foreign_text(error)}")


def by_name(*outputs: Method) -> dict[str, Method]:
    """Return `outputs` by their names."""
    return {output.name: output for output in outputs}


def counted_names(beginning: str, count: int) -> tuple[str, ...]:
    """Return names of columns that a library only counts: `beginning`, and a number from 0."""
    return tuple(f"{beginning}{number}" for number in range(count))


def thread_count(config: ModelConfig) -> int:
    """Return how many threads an execution has, 0 for as many as the library likes."""
    # One by default: instances run side by side, and threads of each
    # would only take turns on the same cores.
    return whole_number(config, THREADS, 1, 0, _MOST_THREADS)
