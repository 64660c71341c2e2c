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
from inferd.errors import InferdError, InvalidConfig, NotLoadable, NotUnique
from inferd.repository.bare import platform_of
from inferd.repository.bucket import Bucket, CloudUrl, cloud_url
from inferd.repository.fetch.settings import FetchSettings, fetch_settings
from inferd.repository.fetch.url import ModelUrl, model_url
from inferd.repository.foreign import foreign_name, is_foreign, nested_foreign
from inferd.repository.layout import FoundModel
from inferd.repository.local import (
    AS_USUAL,
    Reading,
    bare_sign,
    find_model,
    folder_name,
    is_model,
    sign_of,
    single_model,
)
from inferd.repository.mirror import Mirror, folder_for
from inferd.repository.slips import shown
from inferd.repository.tree import NO_MODELS, is_noise

log = logging.getLogger("inferd.repository")

_MOST_LISTED = 5  # of the names in a repository

_READ_AT_ONCE = 4
"""How many models are read, fetched or compared with their checksums in parallel."""


class ModelPath(NamedTuple):
    """Where a model lies: its folder or bare file; `root` is the repository it belongs to.

    One that was given by itself has none, and may have been given another name.
    """

    name: str
    path: Path
    root: Path | None = None
    is_file: bool = False
    is_renamed: bool = False


Place = Path | CloudUrl | ModelUrl
"""Where models are: on this machine, in a cloud, or in a hub, a registry or at a link."""


def place_of(text: str) -> Place:
    """Return the place that a path or URL names. Raises InvalidConfig for a URL of no place."""
    return cloud_url(text) or model_url(text) or Path(text)


def fetched_path(text: str) -> Path:
    """Return the path in `text`, or where what a URL of a hub or registry leads to has been put.

    Raises InvalidConfig, also for URLs of clouds, and NotLoadable.
    """
    place = place_of(text)
    if isinstance(place, CloudUrl):
        raise InvalidConfig(f"{text} is not on this machine; copy it, and check the copy")
    if isinstance(place, Path):
        return place
    return _fetched(place, fetch_settings(os.environ))


def check_not_fetched(text: str) -> None:
    """Raise InvalidConfig if `text` is a URL: what was fetched is shared, and stays as it is."""
    place = place_of(text)
    if not isinstance(place, Path):
        shown_text = place.shown if isinstance(place, ModelUrl) else place.text
        msg = f"--write is for a folder of this machine; nothing is written to '{shown_text}'"
        raise InvalidConfig(msg)


class Repositories:
    """Finds models by name. All methods read disks or clouds: call them in a thread.

    A path may be a repository, the folder of one model, or a bare model file. That is decided once,
    and logged: a file that appears in a repository later does not turn it into a model. A
    repository in a cloud is mirrored in a local folder, as far as it is needed. What is in a hub or
    registry is fetched once, as `fetching` says. `reading` is that of `find_model`. `model_name` is
    for the one model among the paths.
    """

    def __init__(
        self,
        paths: Sequence[Place],
        reading: Reading = AS_USUAL,
        model_name: str = "",
        fetching: FetchSettings | None = None,
    ) -> None:
        """Raises InvalidConfig for a path that is neither a folder nor a model, and NotLoadable.

        Raises InvalidConfig, too, when `model_name` is not for one model.
        """
        # Several models cannot all be called like the one service.
        self._reading = reading if len(paths) == 1 else reading._replace(service_name="")
        self._roots: list[Path] = []
        self._alone: list[ModelPath] = []
        self._mirrors: dict[Path, Mirror] = {}
        self._urls: dict[Path, str] = {}
        self._signs: dict[Path, str] = {}
        try:
            for path in paths:
                if isinstance(path, CloudUrl):
                    self._add_cloud(path)
                elif isinstance(path, ModelUrl):
                    self._add(_fetched(path, fetching or fetch_settings(os.environ)))
                else:
                    # Links stay, as their names are what people know the place by; but ".." is no
                    # name that a model could take.
                    self._add(path.resolve() if ".." in path.parts else path.absolute())
            if model_name:
                self._alone = [self._only_model()._replace(name=model_name, is_renamed=True)]
            self._tell()
        # Mirrors have temporary folders, which nobody else would delete.
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
                raise NotLoadable(f"a model repository cannot be read: {error.strerror}") from error
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
        self._urls[mirror.folder] = url.text
        self._roots.append(mirror.folder)
        try:
            mirror.look()
        except OSError as error:
            msg = f"models of '{url.text}' cannot be kept in the folder for them: {error.strerror}"
            raise NotLoadable(msg) from error

    def _add(self, path: Path) -> None:
        try:
            if not path.exists():
                msg = f"'{path}' does not exist: expected a model repository or a model"
                raise InvalidConfig(msg)
            # A folder called NAME.savedmodel is a bare model, unless it holds versions: then
            # somebody has called a model so.
            if path.is_file() or (path.suffix == ".savedmodel" and not is_model(path)):
                model = single_model(path, self._reading)
                self._alone.append(ModelPath(model.name, path, is_file=True))
                self._signs[path] = "it is a model file"
            elif sign := sign_of(path) or bare_sign(path):
                model = find_model(path, self._reading, name="", is_alone=True)
                self._alone.append(ModelPath(model.name, path))
                self._signs[path] = sign
            else:
                self._roots.append(path)
        except OSError as error:
            raise InvalidConfig(f"'{path}' cannot be read: {error.strerror}") from error

    def _only_model(self) -> ModelPath:
        """Return the one model among the paths. Raises InvalidConfig when it is not one."""
        if len(self._alone) == 1:
            return self._alone[0]
        found = [f"'{place.path}' is a model" for place in self._alone]
        found += [f"'{self._shown(root)}' is {_contents(root)}" for root in self._roots]
        raise InvalidConfig(
            f"--model-name is the name of one model, whose folder or file is given by itself, and "
            f"here {', '.join(found) or 'no such path is'}; leave it out, or name one model's path"
        )

    def _tell(self) -> None:
        """Log what each path was taken for."""
        for place in self._alone:
            log.info("'%s' is one model, '%s': %s", place.path, place.name, self._signs[place.path])
        for root in self._roots:
            log.info("'%s' is %s", self._shown(root), _contents(root))
            with suppress(OSError):  # what is gone already is reported when it is read
                _tell_of_files(root)

    def _shown(self, root: Path) -> str | Path:
        """Return the name of a repository for people."""
        return self._urls.get(root, root)

    def _read(self, places: list[ModelPath], override: ModelConfig | None = None) -> FoundModel:
        [place, *more] = places
        if more:
            msg = (
                f"model appears in two or more repositories: '{place.name}' is in {len(places)} "
                f"places, expected one"
            )
            return FoundModel(place.name, place.path, error=NotUnique(msg))
        try:
            self.fetch(place)
        # A model whose objects do not come is broken like any other;
        # the rest of the repository serves.
        except NotLoadable as error:
            return FoundModel(place.name, place.path, error=error)
        if place.is_file:
            try:
                return single_model(place.path, self._reading, name=place.name, override=override)
            except InferdError as error:
                return FoundModel(place.name, place.path.parent, error=error)
        model = find_model(
            place.path,
            self._reading,
            # In a repository the folder's name is the model's, and a configuration must agree; only
            # MLServer's settings may give another.
            name=None if place.root and not is_foreign(place.path) else place.name,
            is_renamed=place.is_renamed,
            is_alone=place.root is None,
            override=override,
        )
        return msgspec.structs.replace(model, root=place.root)


def _fetched(url: ModelUrl, fetching: FetchSettings) -> Path:
    from inferd.repository.fetch.store import fetched  # which imports much

    return _entrance(fetched(url, fetching, os.environ))


def _entrance(folder: Path) -> Path:
    """Return where the models in a fetched `folder` are: archives often have one folder around."""
    while not sign_of(folder):
        children = [one for one in folder.iterdir() if not is_noise(one.name)]
        if len(children) != 1 or not children[0].is_dir() or sign_of(children[0]):
            # A lone file is the model: its own name is better than that of
            # the folder which an archive had.
            return children[0] if len(children) == 1 and children[0].is_file() else folder
        [folder] = children
    return folder


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
            yield ModelPath(foreign_name(model) or folder_name(model), model, repository)


def _model_folders(repository: Path) -> list[Path]:
    return [child for child in sorted(repository.iterdir()) if _may_be_model(child)]


def _contents(repository: Path) -> str:
    """Return what a repository holds, in words."""
    try:
        models = [child.name for child in _model_folders(repository)]
        others = [] if models else [child.name for child in sorted(repository.iterdir())]
    except OSError:
        return "a repository that cannot be read"
    names = [f"'{shown(name)}'" for name in models or others if not is_noise(name)]
    listed = ", ".join(names[:_MOST_LISTED])
    if len(names) > _MOST_LISTED:
        listed += f" and {len(names) - _MOST_LISTED} more"
    if models:
        return f"a repository of models: {listed}"
    return "a repository without models" + (f"; it holds {listed}" if names else "")


def _tell_of_files(repository: Path) -> None:
    """Warn of a model file in a repository: whoever put it there may want it to be served.

    Scripts beside models are usual.
    """
    has_models = bool(_model_folders(repository))
    for child in sorted(repository.iterdir()):
        if _is_model_file(child) and not (has_models and child.suffix == ".py"):
            log.warning(
                "'%s' is a repository, so the file '%s' in it is not served; for that: "
                "inferd serve %s",
                repository,
                shown(child.name),
                shlex.quote(str(child)),
            )
            return


def _is_model_file(path: Path) -> bool:
    return path.is_file() and not is_noise(path.name) and platform_of(path) is not None


def _may_be_model(child: Path) -> bool:
    return child.is_dir() and not child.name.startswith(".") and child.name not in NO_MODELS
