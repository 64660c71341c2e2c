"""Checks how the models of ensembles fit together, once each has been checked by itself."""

from collections.abc import Mapping
from dataclasses import replace

from inferd.check.model import ModelCheck
from inferd.config.model import EnsembleStep, ModelConfig
from inferd.engine.loading.ensemble import VERSION_0, Dependents, needs_of
from inferd.engine.loading.homes import check_ensemble
from inferd.errors import LoadFailed
from inferd.repository.contents import read_labels
from inferd.schedulers.ensemble_parts.plan import LATEST, EnsemblePlan

_STEPS = ("ensemble_scheduling", "step")


def check_ensembles(checks: Mapping[str, ModelCheck]) -> None:
    """Add what is wrong with the ensembles among `checks`, by name, and the models they call."""
    # The engine's own, so that circles and missing models are found by the rule that loads them.
    graph = Dependents()
    for name, check in checks.items():
        if needs := needs_of(check.model.config):
            graph.want(name, needs)
    done: set[str] = set()
    for name in checks:
        _check_with_callees(name, checks, graph, done)


def _check_with_callees(
    name: str, checks: Mapping[str, ModelCheck], graph: Dependents, done: set[str]
) -> None:
    """Check an ensemble, those that it calls first: one that calls a broken one is broken."""
    check = checks.get(name)
    if check is None or name in done:
        return
    # Before its callees: a circle would not end; `graph.check` has named it already.
    done.add(name)
    needs = needs_of(check.model.config)
    if check.model.config is None or not needs:
        return
    try:
        graph.check(name, needs)
    except LoadFailed as error:
        check.add_problem(error.message, "ensemble", ("ensemble_scheduling",))
        return
    for callee in needs:
        _check_with_callees(callee, checks, graph, done)
    _check_ensemble(check, check.model.config, checks)


def _check_ensemble(
    check: ModelCheck, config: ModelConfig, checks: Mapping[str, ModelCheck]
) -> None:
    assert config.ensemble_scheduling is not None
    check.add_complaints(check.io_complaints(config))
    with check.noting("config"):
        check_ensemble(config)
    with check.noting("file"):
        read_labels(check.model.folder, config)
    called = [
        _called(check, number, step, checks)
        for number, step in enumerate(config.ensemble_scheduling.step)
    ]
    models = [one for one in called if one is not None]
    # With a model missing, its tensors would all be complained of as well.
    if len(models) == len(called) and not check.is_refused:
        with check.noting("ensemble"):
            EnsemblePlan(config, models)
            # One decoupled model makes the ensemble decoupled (Triton).
            is_decoupled = any(model.decoupled for model in models)
            check.complete(replace(config, decoupled=is_decoupled), is_complete=True)


def _called(
    check: ModelCheck, number: int, step: EnsembleStep, checks: Mapping[str, ModelCheck]
) -> ModelConfig | None:
    """Return the configuration of the model that a step calls, None if it is not known."""
    path = (*_STEPS, number)
    found = checks.get(step.model_name)
    if found is None:
        text = f"step {number} calls model '{step.model_name}', which is at none of the paths"
        check.add_problem(text, "ensemble", (*path, "model_name"))
        return None
    if found.is_refused:
        text = f"step {number} calls model '{step.model_name}', which would not load"
        check.add_problem(text, "ensemble", (*path, "model_name"))
        return None
    version = step.model_version
    if version not in (LATEST, *found.model.versions):
        served = ", ".join(map(str, found.model.versions))
        hint = f"; {VERSION_0}" if version == 0 else ""
        text = f"step {number} calls version {version} of model '{step.model_name}', which serves"
        check.add_problem(f"{text} {served}{hint}", "ensemble", (*path, "model_version"))
        return None
    # What only the framework knows cannot be compared.
    return found.config if found.is_complete else None
