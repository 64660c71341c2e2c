"""Catalog: the models a server knows, the state of each version, and which versions serve.

Everything here happens on the event loop and waits for nothing, so every change is atomic to
those who read the catalog.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inferd.config.model import ModelConfig
from inferd.config.parameter_names import VERSION_NAME
from inferd.core.metadata import IndexEntry, ModelMetadata, ModelState
from inferd.core.processes import Failed
from inferd.engine.serving.served import Served
from inferd.errors import ModelNotFound, Unavailable

NO_VERSION = -1
"""Stands for the version of a model that is broken before its versions are known."""

UNLOADED = "unloaded"
"""The reason given for a version that was unloaded; Triton's word."""

UNKNOWN = "Request for unknown model: "
"""How the text for a model or version that is not served begins; clients check it."""


@dataclass(slots=True)
class Version:
    """One version of a known model: its state, and what serves it when it is ready.

    The state of a model that could not even be read is UNKNOWN. A version that `is_excused` does
    not keep a strict server from being ready.
    """

    state: ModelState
    reason: str = ""
    served: Served | None = None
    is_excused: bool = False


class KnownModel:
    """A known model: its versions by number, and the ready ones by string for quick lookup.

    `config` is what the default version runs with. While none is ready, it is what the last one
    ran with, or what was read since; None if nothing could be read.
    """

    def __init__(self) -> None:
        self.config: ModelConfig | None = None
        self.versions: dict[int, Version] = {}
        self.ready: dict[str, Served] = {}
        self.default: Served | None = None

    def refresh(self) -> None:
        """Recompute `ready` and `default` from `versions`; the highest ready one is the default."""
        self.ready = {
            str(number): version.served
            for number, version in sorted(self.versions.items())
            if version.served is not None
        }
        # Dicts keep their order, and this one is sorted by number.
        self.default = next(reversed(self.ready.values()), None)
        if self.default is not None:
            self.config = self.default.config

    def number_of(self, version: str) -> int | None:
        """Return the number of the version that a request calls `version`, None if there is none.

        A version's parameters may give it a name of its own, such as v0.1.0.
        """
        number = version_number(version)
        if number is not None:
            return number
        for token, served in self.ready.items():
            if served.config.parameters.get(VERSION_NAME) == version:
                return int(token)
        return None


class Catalog:
    """The known models by name. `models` is public for lookups in the path of requests.

    `on_add` are told of each version that serves from now on. While it `is_reading`, nobody can
    tell yet which models there are.
    """

    def __init__(self) -> None:
        self.models: dict[str, KnownModel] = {}
        self.is_reading = False
        self.on_add: list[Callable[[Served], None]] = []

    def add(self, *served: Served) -> None:
        """Let loaded versions serve from now on, all at the same moment."""
        for one in served:
            model = self.models.setdefault(one.name, KnownModel())
            # The row that stood for a model whose versions were unknown.
            model.versions.pop(NO_VERSION, None)
            model.versions[int(one.version)] = Version(ModelState.READY, served=one)
            model.refresh()
            for tell in self.on_add:
                tell(one)

    def set_state(
        self,
        name: str,
        version: int,
        state: ModelState,
        reason: str = "",
        *,
        is_excused: bool = False,
    ) -> None:
        """Record the state of a version that does not serve, NO_VERSION when none is known."""
        model = self.models.setdefault(name, KnownModel())
        model.versions[version] = Version(state, reason, is_excused=is_excused)
        model.refresh()

    def describe(self, name: str, config: ModelConfig | None) -> None:
        """Record the configuration that was read, unless a version of the model serves."""
        model = self.models.get(name)
        if model is not None and model.default is None and config is not None:
            model.config = config

    def note(self, name: str, version: int, reason: str) -> None:
        """Record why a version that serves could not be replaced; `add` forgets it."""
        self.models[name].versions[version].reason = reason

    def remove(self, name: str, version: int) -> None:
        """Remove a version that does not serve, and with the last one the model."""
        model = self.models[name]
        del model.versions[version]
        if not model.versions:
            del self.models[name]

    def remove_model(self, name: str) -> None:
        """Remove a model none of whose versions serves."""
        self.models.pop(name, None)

    def clear(self) -> list[Served]:
        """Remove everything; return what served."""
        served = self.served()
        self.models.clear()
        return served

    def versions_of(self, name: str) -> dict[int, Version]:
        """Return the versions of a model by number, none if it is not known."""
        model = self.models.get(name)
        return model.versions if model is not None else {}

    def names(self) -> list[str]:
        """Return the names of the models that have a ready version."""
        return sorted(name for name, model in self.models.items() if model.default)

    def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """Return one row per known model version, or `ready` one, by name and number."""
        return [row for row in self._rows() if row.state is ModelState.READY or not ready]

    def metadata(self, name: str, version: str) -> ModelMetadata:
        """Return the metadata of a ready model (V2, Model Metadata). Raises as `find` does.

        Its `versions` are all ready ones, or only the one asked for.
        """
        served = self.find(name, version)
        # Triton lists what is ready; the one asked for, alone.
        versions = [served.version] if version else list(self.models[name].ready)
        return ModelMetadata(
            served.name, versions, served.platform, served.inputs(), served.outputs()
        )

    def _rows(self) -> Iterator[IndexEntry]:
        """Yield one row per known model version, by name and number."""
        for name, model in sorted(self.models.items()):
            for number, version in sorted(model.versions.items()):
                shown = "" if number == NO_VERSION else str(number)
                # A version whose workers do not come up serves in name only.
                if unavailable_reason := _why_stuck(version):
                    yield IndexEntry(name, shown, ModelState.UNAVAILABLE, unavailable_reason)
                else:
                    # Triton shows no state for a model that it never could read.
                    known = None if version.state is ModelState.UNKNOWN else version.state
                    yield IndexEntry(name, shown, known, version.reason or _remarks(version))

    def failed(self) -> Failed:
        """Return why versions do not serve that should."""
        found: Failed = {}
        for name, model in self.models.items():
            for number, version in model.versions.items():
                if version.state is ModelState.UNAVAILABLE and number != NO_VERSION:
                    found.setdefault(name, {})[str(number)] = version.reason
        return found

    def is_sound(self) -> bool:
        """Tell whether every version is ready and can run, or is excused."""
        return all(
            version.is_excused or (version.state is ModelState.READY and not _why_stuck(version))
            for model in self.models.values()
            for version in model.versions.values()
        )

    def is_empty(self) -> bool:
        """Tell whether no version serves, loads or has failed: there are none but excused ones."""
        return all(
            version.is_excused
            for model in self.models.values()
            for version in model.versions.values()
        )

    def with_workers(self) -> list[Served]:
        """Return the versions that serve and have instances that can be asked how they are."""
        return [one for one in self.served() if one.remote()]

    def is_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, is ready. Raises ModelNotFound."""
        if self.is_reading and name not in self.models:
            return False
        model = self._known(name)
        if not version:
            return model.default is not None and not model.default.unavailable_reason
        number = model.number_of(version)
        if number is None or number not in model.versions:
            raise ModelNotFound(_no_version(name, version, model))
        served = model.versions[number].served
        return served is not None and not served.unavailable_reason

    def find(self, name: str, version: str) -> Served:
        """Return what serves that version, "" for the highest. Raises ModelNotFound, Unavailable.

        `Model.ready` has only the usual spelling of versions; this accepts all and explains errors.
        """
        model = self._known(name)
        # The common case in front.
        if not version and model.default is not None:
            return model.default
        number = model.number_of(version) if version else None
        if number is not None and number in model.versions:
            found = model.versions[number]
            if found.served is not None:
                return found.served
            state = found.state.value + _because(found.reason)
            msg = f"{UNKNOWN}'{name}' version {number} is not at ready state, it is {state}"
            raise Unavailable(msg)
        if version and number not in model.versions:
            raise ModelNotFound(_no_version(name, version, model))
        # A client that is told to wait comes back; one that is told "not found" gives up.
        if any(v.state is ModelState.LOADING for v in model.versions.values()):
            raise Unavailable(_no_versions(name, "it is still loading"))
        reasons = dict.fromkeys(v.reason for v in model.versions.values() if v.reason)
        raise ModelNotFound(_no_versions(name, "; ".join(reasons)))

    def served(self, name: str = "", version: str = "") -> list[Served]:
        """Return all ready versions of all models or of one, or one. Raises as `find` does."""
        if not name:
            return [one for _, model in sorted(self.models.items()) for one in model.ready.values()]
        found = self.find(name, version)
        return [found] if version else list(self.models[name].ready.values())

    def _known(self, name: str) -> KnownModel:
        model = self.models.get(name)
        if model is None and self.is_reading:
            # As above: a client that is told to wait comes back.
            why = "it is still finding out which models there are"
            raise Unavailable(f"{UNKNOWN}'{name}' is not found on this server: {why}")
        if model is None:
            raise ModelNotFound(f"{UNKNOWN}'{name}' is not found on this server")
        return model


def version_number(token: str) -> int | None:
    """Return the version number that a request's token gives: digits, 'v' before them allowed.

    Returns None when the token gives no number (V2 facts: version tokens).
    """
    digits = token[1:] if token[:1] == "v" else token
    # No version folder has more digits than an int64; int() of a hostile token would be slow.
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _no_versions(name: str, why: str) -> str:
    return f"{UNKNOWN}'{name}' has no available versions{_because(why)}"


def _why_stuck(version: Version) -> str:
    """Return why a version that serves cannot run at the moment, "" if it can."""
    return "" if version.served is None else version.served.unavailable_reason


def _remarks(version: Version) -> str:
    """Return what else there is to say of a version that serves."""
    served = version.served
    if served is None:
        return ""
    joining = served.joining
    why_alone = f"its requests are not joined: {joining.reason}" if joining.never_joins else ""
    return "; ".join(filter(None, (served.why_isolated, why_alone)))


def _no_version(name: str, version: str, model: KnownModel) -> str:
    known = ", ".join(str(number) for number in sorted(model.versions) if number != NO_VERSION)
    if version_number(version) is None:  # clients compare these words, too
        return (
            f"failed to get model version from specified version string '{version}': "
            f"expected a number, known versions of model '{name}': {known or 'none'}"
        )
    return f"{UNKNOWN}'{name}' version {version} is not found, known versions: {known or 'none'}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
