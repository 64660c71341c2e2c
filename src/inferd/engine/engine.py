"""Engine: the server without its sockets, one front door for every protocol."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import inferd
from inferd.config.log import LogSettings
from inferd.core.metadata import IndexEntry, ModelMetadata, ModelState, ServerMetadata
from inferd.core.request import InferRequest, InferResponse
from inferd.engine.load import Loader, LoadOptions
from inferd.engine.served import Served
from inferd.errors import InferdError, ModelNotFound, Unavailable, Unsupported
from inferd.observe.log import Log
from inferd.repository.layout import FoundModel

log = logging.getLogger("inferd.engine")

EXTENSIONS = ["binary_tensor_data", "parameters", "logging"]
"""The protocol extensions this server has, by the names Triton's documents give them."""


NO_VERSION = -1
"""Stands for the version of a model that is broken before its versions are known."""


class _Version:
    """One version of a known model: where it stands, and what serves it when it is ready."""

    __slots__ = ("reason", "served", "state")

    def __init__(self, state: ModelState, reason: str = "", served: Served | None = None) -> None:
        self.state = state
        self.reason = reason
        self.served = served


class _Model:
    """A known model: its versions by number, and the ready ones by text for quick lookup."""

    __slots__ = ("default", "ready", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, _Version] = {}
        self.ready: dict[str, Served] = {}
        self.default: Served | None = None

    def refresh(self) -> None:
        """Recompute what follows from `versions`; the highest ready one is the default."""
        self.ready = {
            str(number): version.served
            for number, version in sorted(self.versions.items())
            if version.served is not None
        }
        self.default = next(reversed(self.ready.values()), None)


class Engine:
    """Knows the models, finds the one a request means, checks the request, has it run.

    `name` is the server's name in its metadata. With `strict_readiness` one model that failed to
    load makes the whole server not ready. `log` is what the logging extension tells and changes.
    """

    def __init__(
        self,
        name: str = "inferd",
        *,
        strict_readiness: bool = True,
        load_options: LoadOptions | None = None,
        log: Log | None = None,
    ) -> None:
        self._name = name
        self._strict_readiness = strict_readiness
        self._load_options = load_options or LoadOptions()
        self.log = log or Log(LogSettings())
        self._models: dict[str, _Model] = {}
        self._is_loaded = False
        self._is_draining = False

    # --- what runs ---

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run `request` and return its one answer, with the wanted outputs in model order.

        Raises ModelNotFound, InvalidRequest, Unsupported for a decoupled model, or whatever
        InferdError the scheduler and the model raise.
        """
        served = self._find(request.model, request.version)
        if served.config.decoupled:
            msg = (
                f"model '{served.name}' is decoupled: it may give any number of answers, "
                f"which this call cannot carry; use ModelStreamInfer"
            )
            raise Unsupported(msg)
        served.check_request(request)
        response = await served.scheduler.run(request)
        served.check_response(request, response)
        response.model = served.name
        response.version = served.version
        response.id = request.id
        return response

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Yield the answers of `request` as they come; a model that is not decoupled gives one.

        Raises as `infer` does, while iterating. Closing the generator gives up the answers that
        have not come yet.
        """
        served = self._find(request.model, request.version)
        served.check_request(request)
        async with aclosing(served.scheduler.stream(request)) as responses:
            async for response in responses:
                served.check_response(request, response)
                response.model = served.name
                response.version = served.version
                response.id = request.id
                yield response

    # --- what it tells ---

    def is_decoupled(self, name: str, version: str) -> bool:
        """Tell whether a ready model gives any number of answers. Raises as `infer` does."""
        return self._find(name, version).config.decoupled

    def is_live(self) -> bool:
        """Tell whether the server can answer at all: true from the moment its ports are open."""
        return True

    def is_ready(self) -> bool:
        """Tell whether inference may be sent: loaded, not draining, and (if strict) no failures."""
        if not self._is_loaded or self._is_draining:
            return False
        return not self._strict_readiness or all(
            version.state is ModelState.READY
            for model in self._models.values()
            for version in model.versions.values()
        )

    def is_model_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, answers. Raises ModelNotFound."""
        model = self._known(name)
        if not version:
            return model.default is not None
        number = version_number(version)
        if number is None or number not in model.versions:
            raise ModelNotFound(_no_version(name, version, model))
        return model.versions[number].served is not None

    def check_model(self, name: str, version: str) -> None:
        """Raise as `infer` does when that model, or that version of it, cannot be asked."""
        self._find(name, version)

    def server_metadata(self) -> ServerMetadata:
        """Return the server's name, version and extensions (V2, Server Metadata)."""
        return ServerMetadata(self._name, inferd.__version__, EXTENSIONS)

    def model_metadata(self, name: str, version: str) -> ModelMetadata:
        """Return the metadata of a ready model (V2, Model Metadata).

        `versions` are all ready ones, or only the one asked for. Raises ModelNotFound,
        Unavailable.
        """
        served = self._find(name, version)
        versions = [served.version] if version else list(self._models[name].ready)
        return ModelMetadata(
            served.name, versions, served.platform, served.inputs(), served.outputs()
        )

    def model_names(self) -> list[str]:
        """Return the names of the models that have a ready version."""
        return sorted(name for name, model in self._models.items() if model.default)

    def index(self) -> list[IndexEntry]:
        """Return one row per known model version, by name and number."""
        return [
            IndexEntry(
                name, "" if number == NO_VERSION else str(number), version.state, version.reason
            )
            for name, model in sorted(self._models.items())
            for number, version in sorted(model.versions.items())
        ]

    # --- what changes it ---

    def set_state(self, name: str, version: int, state: ModelState, reason: str = "") -> None:
        """Record where a version stands that does not serve, NO_VERSION when none is known."""
        model = self._models.setdefault(name, _Model())
        model.versions[version] = _Version(state, reason)
        model.refresh()

    def add(self, served: Served) -> None:
        """Let a loaded version answer from now on."""
        model = self._models.setdefault(served.name, _Model())
        model.versions[int(served.version)] = _Version(ModelState.READY, served=served)
        model.refresh()

    async def load_all(self, repositories: Sequence[Path | str]) -> None:
        """Load every model below `repositories`; from then on the server may be ready.

        A model that cannot be loaded stays in the index with its reason, the others serve.
        Raises InvalidConfig for a path that holds no models.
        """
        loader = Loader(self._load_options)
        found = await asyncio.to_thread(loader.find, [Path(path) for path in repositories])
        free_threads = asyncio.Semaphore(self._load_options.model_load_thread_count)
        jobs = []
        for model in found:
            for version in model.versions or (NO_VERSION,):
                self.set_state(model.name, version, ModelState.LOADING)
                jobs.append(self._load_version(loader, model, version, free_threads))
        await asyncio.gather(*jobs)
        self.finish_loading()

    async def _load_version(
        self, loader: Loader, model: FoundModel, version: int, free_threads: asyncio.Semaphore
    ) -> None:
        async with free_threads:
            try:
                self.add(await loader.load_in_thread(model, version))
            except InferdError as error:
                log.error("%s", error.message)  # noqa: TRY400  the text says it all
                self.set_state(model.name, version, ModelState.UNAVAILABLE, error.message)

    def finish_loading(self) -> None:
        """Mark the first loading as done: from now on the server may be ready."""
        self._is_loaded = True

    def drain(self) -> None:
        """Be not ready from now on; requests still run."""
        self._is_draining = True

    async def close(self, timeout_s: float) -> None:
        """Close every version. Requests that run in threads are waited for, `timeout_s` at most."""
        self.drain()
        served = [one for model in self._models.values() for one in model.ready.values()]
        self._models.clear()
        ends = await asyncio.gather(
            *(one.scheduler.close(timeout_s) for one in served), return_exceptions=True
        )
        for one, error in zip(served, ends, strict=True):
            if error is not None:
                log.error("model '%s' does not close: %s", one.name, error, exc_info=error)

    # --- how it finds a model ---

    def _find(self, name: str, version: str) -> Served:
        model = self._models.get(name)
        if model is not None:
            served = model.ready.get(version) if version else model.default
            if served is not None:
                return served
        return self._find_or_explain(name, version)

    def _find_or_explain(self, name: str, version: str) -> Served:
        model = self._known(name)
        number = version_number(version) if version else None
        if number is not None and number in model.versions:
            found = model.versions[number]
            if found.served is not None:
                return found.served
            msg = f"model '{name}' version {number} is {found.state.value}" + _because(found.reason)
            is_to_come = found.state is ModelState.LOADING or model.default
            raise Unavailable(msg) if is_to_come else ModelNotFound(msg)
        if version and number not in model.versions:
            raise ModelNotFound(_no_version(name, version, model))
        if any(v.state is ModelState.LOADING for v in model.versions.values()):
            msg = f"model '{name}' is still loading"
            raise Unavailable(msg)
        reasons = "; ".join(v.reason for v in model.versions.values() if v.reason)
        msg = f"model '{name}' has no version ready" + _because(reasons)
        raise ModelNotFound(msg)

    def _known(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            msg = f"there is no model '{name}' on this server"
            raise ModelNotFound(msg)
        return model


def version_number(token: str) -> int | None:
    """Return the version a request's token means: decimal digits, 'v' before them allowed.

    None when the token names no number (V2 facts: version tokens).
    """
    digits = token[1:] if token[:1] == "v" else token
    # No version folder has more digits than an int64; int() of a hostile token would be slow.
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _no_version(name: str, version: str, model: _Model) -> str:
    known = ", ".join(str(number) for number in sorted(model.versions) if number != NO_VERSION)
    return f"model '{name}' has no version '{version}', known versions: {known or 'none'}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
