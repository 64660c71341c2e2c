"""ModelSources: what models are made from: in repositories, handed over by a program, or sent.

The methods of ModelSources read the disk or take long: call them in a thread.
"""

import errno
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.interfaces import GivenModel
from inferd.core.load import LoadRequest
from inferd.engine.loading.ensemble import needs_of
from inferd.engine.loading.load import Loader, LoadOptions, tell_ignored
from inferd.engine.loading.lookup import code_folder, models_in
from inferd.errors import InvalidConfig, InvalidRequest, NotLoadable
from inferd.repository.contents import MAX_CONFIG_BYTES
from inferd.repository.layout import FoundModel
from inferd.repository.local import OVERRIDE, Reading, find_model, is_app
from inferd.repository.repositories import Place, Repositories, model_in
from inferd.repository.tree import link_out
from inferd.repository.upload import Upload, Uploads
from inferd.repository.watch import NO_MARKS, Marks, ModelWatch, file_prints, marks_of

log = logging.getLogger("inferd.engine")

ALL = "*"
"""The value of --load-model for every model in the repositories."""

_REQUIRED = "models have to be signed (--require-signatures)"

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
"""What tells of a folder only that it is not there: no reason for a traceback."""


class ModelSource(NamedTuple):
    """What versions are made from: what is in the repository, or (`is_override`) what was sent.

    `upload` holds the files if a client sent those, too; `callees` are the versions that the steps
    of an ensemble call. `code` is the marks of the code of its Python-based backend, if it has one.
    `prints`, by version, are compared with those of the other processes of the server.
    """

    model: FoundModel
    marks: Marks
    is_override: bool = False
    upload: Upload | None = None
    callees: tuple[object, ...] = ()
    code: Marks = NO_MARKS
    prints: Mapping[int, tuple[str, ...]] = {}

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the models that it calls."""
        return needs_of(self.model.config)

    def marks_of(self, version: int) -> tuple[object, ...]:
        """Return everything a version depends on but the configuration."""
        own = self.marks.versions.get(str(version), b"")
        shared = self.marks.shared
        return (self.model.folder, self.model.file, shared, own, self.callees, self.code)


class ModelSources:
    """Reads the models that the control mode selects, from the paths the server was given.

    Models that a program hands over, or an app file defines, are loaded at the start in every mode.
    """

    def __init__(self, loader: Loader, options: LoadOptions) -> None:
        self._loader = loader
        self._options = options
        self._mode = options.model_control_mode
        directory = options.backend_directory
        self._directory = Path(directory) if directory else None
        self.uploads = Uploads(options.model_upload_max_bytes)
        self._repositories = Repositories(())
        self._roots: list[Path] = []
        self._given: dict[str, GivenModel] = {}
        self._apps: dict[str, Path] = {}  # which files define models, by the models' names
        self.watch = ModelWatch(self._repositories)

    def open(self, paths: Sequence[Place], given: Sequence[GivenModel] = ()) -> list[FoundModel]:
        """Return the models to load at the start.

        Raises InvalidConfig for a path that holds none, NotLoadable for a cloud that does not
        answer.
        """
        paths = _distinct(paths)
        apps = [path for path in paths if isinstance(path, Path) and is_app(path)]
        if apps and self._options.signature_keys is not None:
            msg = f"{_REQUIRED}: the functions of {apps[0].name} are no models that can be signed"
            raise InvalidConfig(msg)
        folders = [path for path in paths if path not in apps]
        if apps and self._mode == "poll":
            _tell_that_apps_stay(apps, is_all=not folders)
        name = self._options.model_name
        self._repositories = Repositories(
            folders, self._loader.reading, name, self._options.fetching
        )
        self._roots = [folder.absolute() for folder in folders if isinstance(folder, Path)]
        for model in given:
            self._give(model)
        for app in apps:
            for model in models_in(app):
                self._give(model)
                self._apps[model.name] = app
        handed_over = [self._loader.given(model) for model in self._given.values()]
        return [*handed_over, *self._found()]

    def _give(self, model: GivenModel) -> None:
        if model.name in self._given or model.name in self._repositories.places():
            raise InvalidConfig(f"two models are called '{model.name}'")
        self._given[model.name] = model

    def _found(self) -> list[FoundModel]:
        """Return the models to load at the start besides those given."""
        self.watch = ModelWatch(self._repositories)
        if self._mode == "poll":  # before the files are read, so that changes meanwhile are noticed
            self.watch.look()
        wanted = self._options.load_model
        if self._mode != "explicit" or ALL in wanted:
            return self._repositories.find_all()
        return [
            # One that is wanted and not there is shown as failed, and keeps the server from being
            # ready.
            self._repositories.find(name) or FoundModel(name, Path(), error=_unknown(name))
            for name in dict.fromkeys(wanted)
            if name not in self._given
        ]

    def close(self) -> None:
        """Delete the files that clients sent, and those fetched from clouds."""
        self.uploads.close()
        self._repositories.close()

    def names(self) -> list[str]:
        """Return the names of the models that can be loaded. Raises NotLoadable."""
        return sorted({*self._given, *self._repositories.places()})

    def of(self, model: FoundModel) -> ModelSource:
        """Return the source of `model`, which has just been read."""
        tell_ignored(model)
        prints = self._prints(model)
        if self._mode == "none" or model.backend is not None:
            return ModelSource(model, NO_MARKS, prints=prints)
        code = code_folder(model.config, self._directory)
        self.watch.follow(model.name, code)
        return ModelSource(
            model,
            marks_of(model.folder, model.lone_file),
            code=NO_MARKS if code is None else marks_of(code),
            prints=prints,
        )

    def _prints(self, model: FoundModel) -> dict[int, tuple[str, ...]]:
        """Return what the versions of `model` are made from, for the other processes, if any."""
        if model.config is None or self._loader.exchange is None:
            return {}
        config = config_print(model.config)
        if model.backend is not None:
            app = self._apps.get(model.name)
            return {1: (config, *(file_prints(app.parent, 1, app) if app else ()))}
        code = code_folder(model.config, self._directory)
        return {
            version: (
                config,
                *file_prints(model.folder, version, model.lone_file),
                *(file_prints(code, version, code) if code else ()),
            )
            for version in model.versions
        }

    def find(self, name: str) -> ModelSource | None:
        """Return the model as it is in a repository, None when it is not there.

        Raises NotLoadable when a repository cannot be read. In explicit mode, where clients load
        the steps of ensembles through this, it also refuses links as `requested` does.
        """
        if name in self._given:
            return self.of(self._loader.given(self._given[name]))
        model = self._repositories.find(name)
        if model is None:
            return None
        if self._mode == "explicit":
            # In explicit mode clients choose what is read, and a link could lead them to any file
            # of the server's user.
            self._check_links(model)
        return self.of(model)

    def requested(self, request: LoadRequest) -> ModelSource:
        """Return what `request`, which sends no files, asks for.

        Raises NotLoadable, InvalidRequest, InvalidConfig for the configuration sent.
        """
        if request.folder is not None:
            return self._placed(request.model, request.folder)
        self._check_unsigned(request)
        override = None if request.config is None else _read_config(request.model, request.config)
        given = self._given.get(request.model)
        model = (
            self._loader.given(given, override)
            if given
            else self._repositories.find(request.model, override)
        )
        if model is None:
            raise _unknown(request.model)
        self._check_links(model)
        return self.of(model)._replace(is_override=override is not None)

    def _placed(self, name: str, folder: Path) -> ModelSource:
        """Return the model called `name` in `folder`, which is that model's or holds it alone.

        Raises NotLoadable unless `folder` is in a repository.
        """
        try:
            # Raises for what is not there, and resolves links, so that ".." and links are seen
            # through.
            place = folder.resolve(strict=True)
            roots = [root for root in self._roots if place.is_relative_to(root.resolve())]
            if not roots or not place.is_dir():
                raise NotLoadable(_nowhere(name, folder))
            found = model_in(place)
        except OSError as error:
            cause = None if error.errno in _NOT_THERE else error
            raise NotLoadable(_nowhere(name, folder)) from cause
        model = find_model(found, self._loader.reading, name=name, is_renamed=True)
        model = msgspec.structs.replace(model, root=roots[0].resolve())
        self._check_links(model)
        return self.of(model)

    def sent(self, request: LoadRequest, upload: Upload) -> ModelSource:
        """Return the model that `request` sent, with its files in `upload`.

        Raises InvalidRequest, InvalidConfig for the configuration.
        """
        self._check_unsigned(request)
        override = _read_config(request.model, request.config or "")
        # Not the server's reading: configs/NAME.pbtxt, auto-completion and signatures are about
        # repositories, and signatures are refused above.
        reading = Reading(gpu_count=self._loader.reading.gpu_count)
        model = find_model(upload.folder, reading, name=request.model, override=override)
        source = self.of(model)
        # All processes were sent the same files, which each has written at another time.
        prints = {version: found[:1] for version, found in source.prints.items()}
        return source._replace(is_override=True, upload=upload, prints=prints)

    def _check_unsigned(self, request: LoadRequest) -> None:
        """Refuse a configuration, and so files, that are sent where models have to be signed."""
        if self._options.signature_keys is not None and request.config is not None:
            msg = not_loaded(request.model, f"{_REQUIRED}, and a configuration that is sent is not")
            raise InvalidRequest(msg)

    def _check_links(self, model: FoundModel) -> None:
        if model.root is None or self._options.model_repository_links != "inside":
            return
        link = link_out(model.folder, model.root)
        if link is not None:
            msg = (
                f"'{link}' is a link that leads out of the repository; "
                f"--model-repository-links=any allows that"
            )
            raise NotLoadable(not_loaded(model.name, msg))


def not_loaded(name: str, why: str) -> str:
    """Return the text for a model of which nothing was begun, in the words clients compare."""
    return f"failed to load '{name}', failed to poll from model repository: {why}"


def _read_config(name: str, text: str) -> ModelConfig:
    # Before parsing: JSON in memory is many times its text.
    if len(text) > MAX_CONFIG_BYTES:
        msg = f"the config has {len(text)} characters, the limit is {MAX_CONFIG_BYTES}"
        raise InvalidRequest(msg)
    try:
        return parse_json(text, OVERRIDE)
    except InvalidConfig as error:
        raise InvalidConfig(not_loaded(name, error.message)) from error


def _distinct(paths: Sequence[Place]) -> list[Place]:
    """Return `paths` without those that are there before: their models are there once."""
    found: dict[Place, Place] = {}
    for path in paths:
        found.setdefault(path.absolute() if isinstance(path, Path) else path, path)
    return list(found.values())


def _nowhere(name: str, folder: Path) -> str:
    return not_loaded(name, f"'{folder}' is no folder in a model repository")


def _unknown(name: str) -> NotLoadable:
    return NotLoadable(not_loaded(name, "there is no such model in it"))


def _tell_that_apps_stay(apps: Sequence[Path], *, is_all: bool) -> None:
    """Warn that `apps` are not followed; raise InvalidConfig when there is nothing else."""
    names = ", ".join(app.name for app in apps)
    msg = (
        f"--model-control-mode=poll follows folders, and {names} is read once, at the start; "
        f"start the server again when it has changed"
    )
    if is_all:
        msg += ", and without this mode"
        raise InvalidConfig(msg)
    log.warning("%s", msg)


def config_print(config: ModelConfig) -> str:
    """Return a print of `config`, without what may change while a version serves."""
    # Processes may be at different counts for a moment, while a version is resized.
    lasting = to_json(replace(config, version_policy=None, instance_group=()))
    return blake2b(json.dumps(lasting).encode(), digest_size=8).hexdigest()
