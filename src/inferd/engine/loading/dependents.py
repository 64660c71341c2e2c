"""Dependents: which ensembles need which models, and which models were loaded only for them."""

from inferd.config.model import ModelConfig
from inferd.errors import LoadFailed

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
        msg = f"ensemble '{name}' calls itself: {way}"
        raise LoadFailed(msg)
    if len(chain) > MAX_NESTING:
        msg = f"ensemble '{chain[0]}' is more than {MAX_NESTING} ensembles inside each other"
        raise LoadFailed(msg)
