"""Repositories: the paths a server was given, and the models that are there at present."""

import logging
import os
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from inferd.config.checks import CONFIG_FILE
from inferd.config.model import ModelConfig
from inferd.config.platform import platform_of_file
from inferd.errors import InferdError, InvalidConfig, InvalidRequest, NotLoadable, NotUnique
from inferd.repository.bucket import Bucket
from inferd.repository.cloud_url import CloudUrl
from inferd.repository.foreign import foreign_name, is_foreign, nested_foreign
from inferd.repository.layout import FoundModel, check_model_name
from inferd.repository.local import (
    AS_USUAL,
    Reading,
    find_model,
    folder_name,
    is_model,
    single_model,
)
from inferd.repository.mirror import Mirror, folder_for
from inferd.repository.tree import NO_MODELS

log = logging.getLogger("inferd.repository")

_READ_AT_ONCE = 4
"""How many models are read, fetched or compared with their checksums in parallel."""


class ModelPath(NamedTuple):
    """Where a model lies: its folder or bare file; `root` is the repository it belongs to."""

    name: str
    path: Path
    root: Path | None = None
    is_file: bool = False


class Repositories:
    """Finds models by name. All methods read disks or clouds: call them in a thread.

    A path may be a repository, the folder of one model, or a bare model file. That is decided once:
    a file that appears in a repository later does not turn it into a model. A repository in a cloud
    is mirrored in a local folder, as far as it is needed. `reading` is that of `find_model`.
    """

    def __init__(self, paths: Sequence[Path | CloudUrl], reading: Reading = AS_USUAL) -> None:
        """Raises InvalidConfig for a path that is neither a folder nor a model, and NotLoadable."""
        self._reading = reading
        self._roots: list[Path] = []
        self._alone: list[ModelPath] = []
        self._mirrors: dict[Path, Mirror] = {}
        try:
            for path in paths:
                if isinstance(path, CloudUrl):
                    self._add_cloud(path)
                else:
                    self._add(path.absolute())
        except InferdError:
            self.close()
            raise

    def places(self) -> dict[str, list[ModelPath]]:
        """Return where each model lies now, by name, in the order of names.

        Raises NotLoadable when a repository cannot be read.
        """
        found: dict[str, list[ModelPath]] = defaultdict(list)
        for place in self._alone:
            found[place.name].append(place)
        for root in self._roots:
            try:
                if root in self._mirrors:
                    self._mirrors[root].look()
                    # Files are fetched when needed: until then, only folder names are known.
                    here = [ModelPath(folder_name(one), one, root) for one in _model_folders(root)]
                else:
                    here = list(_places_in(root))
            except OSError as error:
                msg = f"a model repository cannot be read: {error.strerror}"
                raise NotLoadable(msg) from error
            for place in here:
                found[place.name].append(place)
        return dict(sorted(found.items()))

    def find_all(self) -> list[FoundModel]:
        """Return every model, in the order of names; a broken one carries its error.

        A name that is found twice is an error, too. Raises NotLoadable as `places` does.
        """
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            return list(pool.map(self._read, self.places().values()))

    def find(self, name: str, override: ModelConfig | None = None) -> FoundModel | None:
        """Return the model called `name`, None when there is none. Raises as `places` does.

        The name is looked up among the models found, and never made part of a path. `override`
        replaces config.pbtxt.
        """
        places = self.places().get(name)
        return self._read(places, override) if places else None

    def fetch(self, place: ModelPath) -> None:
        """Fetch the files of the model at `place`, if it is in a cloud. Raises NotLoadable."""
        if place.root in self._mirrors:
            self._mirrors[place.root].fetch(place.name)

    def close(self) -> None:
        """Delete the files fetched from clouds."""
        for mirror in self._mirrors.values():
            mirror.close()

    def _add_cloud(self, url: CloudUrl) -> None:
        mirror = Mirror(Bucket(url, os.environ), folder_for(url, os.environ))
        self._mirrors[mirror.folder] = mirror
        self._roots.append(mirror.folder)
        mirror.look()

    def _add(self, path: Path) -> None:
        try:
            if not path.exists():
                msg = f"'{path}' does not exist: expected a model repository or a model"
                raise InvalidConfig(msg)
            is_alone = path.is_dir() and is_model(path)
            if path.is_file() or (platform_of_file(path.name) and not is_alone):
                model = single_model(path, gpu_count=self._reading.gpu_count)
                self._alone.append(ModelPath(model.name, path, is_file=True))
            elif is_alone:
                model = find_model(path, self._reading, name="")
                self._alone.append(ModelPath(model.name, path))
            else:
                if not _model_folders(path):
                    _tell_of_files(path)
                self._roots.append(path)
        except OSError as error:
            msg = f"'{path}' cannot be read: {error.strerror}"
            raise InvalidConfig(msg) from error

    def _read(self, places: list[ModelPath], override: ModelConfig | None = None) -> FoundModel:
        [place, *more] = places
        if more:
            msg = f"model '{place.name}' appears in {len(places)} places, expected one"
            return FoundModel(place.name, place.path, error=NotUnique(msg))
        try:
            self.fetch(place)
        except NotLoadable as error:
            return FoundModel(place.name, place.path, error=error)
        if place.is_file:
            gpu_count = self._reading.gpu_count
            try:
                return single_model(place.path, override=override, gpu_count=gpu_count)
            except InferdError as error:
                return FoundModel(place.name, place.path.parent, error=error)
        model = find_model(
            place.path,
            self._reading,
            name=None if place.root and not is_foreign(place.path) else place.name,
            override=override,
        )
        return msgspec.structs.replace(model, root=place.root)


def model_in(folder: Path) -> Path:
    """Return the folder of the one model in `folder`: itself, or the only folder in it.

    Raises NotLoadable when there are several or none, and OSError.
    """
    if is_model(folder):
        return folder
    found = _model_folders(folder)
    if len(found) != 1:
        msg = f"there are {len(found)} models in the folder '{folder.name}', expected one"
        raise NotLoadable(msg)
    return found[0]


def _places_in(repository: Path) -> Iterator[ModelPath]:
    """Yield the places of a repository's models: its folders, or MLServer's nested deeper."""
    for folder in _model_folders(repository):
        models = [folder]
        if not (folder / CONFIG_FILE).exists() and not is_foreign(folder):
            with suppress(OSError):  # an unreadable folder is reported when it is read
                models = nested_foreign(folder) or models
        for model in models:
            yield ModelPath(_foreign_name(model) or folder_name(model), model, repository)


def _foreign_name(folder: Path) -> str:
    """Return MLServer's name for the model in `folder`, "" if the folder's name is to be used."""
    try:
        name = foreign_name(folder)
        check_model_name(name)
    except (OSError, InvalidRequest):
        return ""
    return name


def _model_folders(repository: Path) -> list[Path]:
    return [child for child in sorted(repository.iterdir()) if _may_be_model(child)]


def _tell_of_files(repository: Path) -> None:
    """Warn of a model file in a repository without models: it was probably meant."""
    for child in sorted(repository.iterdir()):
        if child.is_file() and platform_of_file(child.name):
            log.warning(
                "'%s' has no folders of models; to serve the file in it: inferd serve %s",
                repository,
                shlex.quote(str(child)),
            )
            return


def _may_be_model(child: Path) -> bool:
    return child.is_dir() and not child.name.startswith(".") and child.name not in NO_MODELS
