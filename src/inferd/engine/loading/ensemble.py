"""Ensembles: which models they need, and a version built from those that its steps call."""

from collections.abc import Callable, Mapping, Sequence

from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.core.interfaces import Models
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
        raise InvalidConfig(
            f"ensemble '{config.name}' takes {run_count} runs of models for each request, "
            f"at most {MAX_RUNS} may be; most of them on this way: {' → '.join(way)}"
        )
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


# Each level is a coroutine within a coroutine, and a line in error messages.
MAX_NESTING = 32
"""The greatest depth of ensembles that call each other."""


def needs_of(config: ModelConfig | None) -> tuple[str, ...]:
    """Return the names of the models that a model with this configuration calls."""
    ensemble = config.ensemble_scheduling if config else None
    # Each once, in the order of the steps.
    return tuple(dict.fromkeys(step.model_name for step in ensemble.step)) if ensemble else ()


class Dependents:
    """Knows which models are needed by which: a model is asked for itself, or by ensembles."""

    def __init__(self) -> None:
        self._needs: dict[str, tuple[str, ...]] = {}
        self._requested: set[str] = set()

    def ask(self, name: str) -> None:
        """Note that the model is wanted for its own sake."""
        self._requested.add(name)

    def want(self, name: str, needs: tuple[str, ...]) -> None:
        """Note that the model is wanted, and calls the models in `needs`."""
        if needs:
            self._needs[name] = needs
        else:
            self._needs.pop(name, None)

    def check(self, name: str, needs: tuple[str, ...]) -> None:
        """Raise LoadFailed when the model cannot call the models in `needs`.

        That is when it would come to call itself, or when too many ensembles would be nested,
        counted from those that call it.
        """
        graph = {**self._needs, name: needs}
        callers = [name]
        # The list grows while it is walked.
        for one in callers:
            callers += [above for above in self.of(one) if above not in callers]
        # Paths of equal length down the call graph, one for each model they end at.
        ways: dict[str, tuple[str, ...]] = {one: (one,) for one in callers}
        while ways:
            longer: dict[str, tuple[str, ...]] = {}
            for one, way in ways.items():
                for callee in graph.get(one, ()):
                    check_chain(way, callee)
                    longer[callee] = (*way, callee)
            ways = longer

    def leave(self, name: str) -> list[str]:
        """Note that the model is no longer wanted; return the models loaded for its sake alone."""
        self._requested.discard(name)
        needed = self._needs.pop(name, ())
        # One that was loaded for itself stays when the last ensemble that calls it goes.
        return [one for one in needed if one not in self._requested and not self.of(one)]

    def of(self, name: str) -> list[str]:
        """Return the wanted ensembles that call the model."""
        return sorted(ensemble for ensemble, needs in self._needs.items() if name in needs)


def check_chain(chain: tuple[str, ...], name: str) -> None:
    """Raise LoadFailed when `name` is in `chain`, the ensembles it is to be loaded for.

    Also raise it when the chain is deeper than ensembles may be nested.
    """
    if name in chain:
        way = " → ".join((*chain[chain.index(name) :], name))
        raise LoadFailed(f"ensemble '{name}' calls itself: {way}")
    if len(chain) > MAX_NESTING:
        msg = f"ensemble '{chain[0]}' is more than {MAX_NESTING} ensembles inside each other"
        raise LoadFailed(msg)
