"""Readiness: what serves, what an ensemble lacks, and why a model cannot call others."""

from collections.abc import Sequence
from contextlib import suppress

from inferd.engine.loading.catalog import Catalog
from inferd.engine.loading.ensemble import Dependents, find_steps
from inferd.engine.loading.source import ModelSource
from inferd.errors import LoadFailed

# Chains of ensembles would repeat each other's reasons in full.
MAX_REASON = 300
"""The most characters of a step's failure that are repeated in its ensemble's."""


class ModelReadiness:
    """Answers questions about the models in `catalog`, and the ensembles among its `dependents`."""

    def __init__(self, catalog: Catalog, dependents: Dependents) -> None:
        self._catalog = catalog
        self._dependents = dependents

    def serves(self, name: str) -> bool:
        """Tell whether a version of the model does."""
        model = self._catalog.models.get(name)
        return model is not None and model.default is not None

    def missing(self, source: ModelSource | None) -> list[str]:
        """Return the steps of an ensemble that do not serve."""
        needs = source.needs if source else ()
        return [name for name in needs if not self.serves(name)]

    def serving_steps(self, source: ModelSource | None, looked: set[str]) -> list[str]:
        """Return the steps of an ensemble that serve and were not yet `looked` at."""
        needs = source.needs if source else ()
        return [name for name in needs if self.serves(name) and name not in looked]

    def is_called(self, name: str) -> bool:
        """Tell whether an ensemble that calls the model serves."""
        return any(map(self.serves, self._dependents.of(name)))

    def misfit(self, name: str, needs: tuple[str, ...], missing: list[str]) -> LoadFailed | None:
        """Return why a model cannot call the models in `needs`, those `missing` among them."""
        if missing:
            needed = ", ".join(map(self.with_reason, missing))
            return LoadFailed(f"model '{name}' needs {needed}, which is not loaded")
        try:
            self._dependents.check(name, needs)
        except LoadFailed as error:
            return error
        return None

    def stuck(self, source: ModelSource) -> LoadFailed | None:
        """Return why an ensemble that a client loads would not run: its steps serve but cannot."""
        config = source.model.config
        with suppress(LoadFailed):  # a version that is not there is told of by the load itself
            for step in find_steps(config, self._catalog.find) if config is not None else ():
                if unavailable_reason := step.unavailable_reason:
                    why = unavailable_reason[:MAX_REASON]
                    msg = f"model '{source.model.name}' needs {step.name}, which cannot run: {why}"
                    return LoadFailed(msg)
        return None

    def callees(self, needs: Sequence[str]) -> tuple[object, ...]:
        """Return what serves the models in `needs`; the tuple differs when anything else does."""
        models = (self._catalog.models.get(name) for name in needs)
        return tuple(tuple(model.ready.values()) if model else () for model in models)

    def with_reason(self, name: str) -> str:
        """Return the name of a model that does not serve, with the reason."""
        reasons = [row.reason for row in self._catalog.versions_of(name).values() if row.reason]
        return f"{name} ({reasons[-1][:MAX_REASON]})" if reasons else name
