"""Ensembles: a version that serves, built from the versions that its steps call."""

from collections.abc import Callable, Mapping, Sequence

from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.core.interfaces import Models
from inferd.engine.loading.dependents import MAX_NESTING
from inferd.engine.serving.served import Served
from inferd.errors import InferdError, InvalidConfig, LoadFailed
from inferd.observe.stats import Counts
from inferd.schedulers.ensemble import EnsembleScheduler
from inferd.schedulers.ensemble_parts.plan import LATEST, EnsemblePlan
from inferd.tensor.classification import Labels

VERSION_0 = "a model_version that is left out means 0, write -1 for the latest"

# Nested ensembles multiply: a handful of levels with ten steps each would be millions of runs for
# one request.
MAX_RUNS = 1000
"""The most model runs one request to an ensemble may take, those of nested ensembles included."""


def find_steps(config: ModelConfig, find: Callable[[str, str], Served]) -> list[Served]:
    """Return what serves each step of `config` now, an empty list if it is no ensemble.

    `find` is Catalog.find. Raises LoadFailed, naming the step.
    """
    found = []
    ensemble = config.ensemble_scheduling
    for number, step in enumerate(ensemble.step if ensemble else ()):
        version = "" if step.model_version == LATEST else str(step.model_version)
        try:
            found.append(find(step.model_name, version))
        except InferdError as error:
            msg = f"ensemble '{config.name}', step {number}: {error.message}"
            # Version 0 is what a left-out field reads as, and almost never meant.
            if step.model_version == 0:
                msg += f"; {VERSION_0}"
            raise LoadFailed(msg) from error
    return found


def build_ensemble(
    config: ModelConfig,
    version: int,
    steps: Sequence[Served],
    models: Models,
    counts: Counts,
    labels: Mapping[str, Labels],
) -> Served:
    """Return the ensemble; it is checked against the versions `steps`, and will call `models`.

    Outputs without `labels` get those of the step they come from. Raises InvalidConfig when
    something does not fit.
    """
    plan = EnsemblePlan(config, [step.config for step in steps])
    nesting = 1 + max(step.nesting for step in steps)
    if nesting > MAX_NESTING:
        msg = f"ensemble '{config.name}' is more than {MAX_NESTING} ensembles inside each other"
        raise InvalidConfig(msg)
    run_count = sum(step.run_count for step in steps)
    way = (f"{config.name} ({run_count})", *max(steps, key=lambda step: step.run_count).way)
    if run_count > MAX_RUNS:
        msg = (
            f"ensemble '{config.name}' takes {run_count} runs of models for each request, "
            f"at most {MAX_RUNS} may be; most of them on this way: {' → '.join(way)}"
        )
        raise InvalidConfig(msg)
    with_sequences = [number for number, step in enumerate(steps) if step.has_sequences]
    scheduler = EnsembleScheduler(plan, models, counts, with_sequences)
    inherited: dict[str, Labels] = {}
    for step in plan.steps:
        for inner, outer in step.outputs.items():
            inherited[outer] = steps[step.number].labels.get(inner, ())
    served = Served(
        config,
        version,
        reported_platform(config),
        scheduler,
        counts=counts,
        # The ensemble's own label files win.
        labels=inherited | dict(labels),
    )
    served.ensemble = scheduler
    # A version that several steps call is asked once how it is.
    served.steps = tuple(dict.fromkeys(steps))
    served.responses.is_lax = any(step.responses.is_lax for step in steps)
    served.has_sequences = bool(with_sequences)
    served.nesting = nesting
    served.run_count = run_count
    served.way = way
    return served
