"""What the check calls an error is what the server refuses, and nothing else."""

import asyncio

import pytest
from good import BASES
from test_good import MODELS
from test_slips import GONE, LAYOUT, VALUES, breaking

import inferd
from inferd.check.places import check_paths
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.errors import InferdError, LoadFailed
from inferd.repository.local import Reading
from inferd.repository.repositories import Repositories

HERE = ("everything", "sequence", "oldest", "onnx", "idle")
"""Good repositories whose models need no GPU and no process of their own."""

USUAL = Reading()


async def refused(folder):
    """Return the names of the models that the server would not load."""
    loader = Loader(LoadOptions())
    names = set()
    for model in Repositories([folder], USUAL).find_all():
        try:
            if model.error is not None:
                raise model.error
            for version in model.versions:
                served = await loader.load_in_thread(model, version)
                await served.scheduler.close(0.0)
        except InferdError:
            names.add(model.name)
    return names


def agree(folder):
    found = check_paths([folder], USUAL).findings
    wrong = {one.model for one in found if one.level == "error"}
    assert wrong == asyncio.run(refused(folder)), found
    return wrong


@pytest.mark.parametrize("base", HERE)
def test_what_is_good_loads(repository, base):
    assert agree(repository(BASES[base])) == set()


@pytest.mark.parametrize(
    "name", [name for name in MODELS if "py" not in name and "Python" not in name]
)
def test_what_people_have_loads(repository, name):
    assert agree(repository(MODELS[name])) == set()


@pytest.mark.parametrize(
    "value",
    [one for one in VALUES if one[0] in HERE],
    ids=lambda value: f"{value[0]}: {value[2][:40]}",
)
def test_a_value_that_does_not_fit_is_refused_by_both(repository, value):
    _, files = breaking(*value[:3])
    agree(repository(files))


@pytest.mark.parametrize(
    "slip",
    [one for one in LAYOUT if one[0] in HERE],
    ids=lambda slip: f"{slip[0]}: {[*slip[1]]} {slip[5]}",
)
def test_a_file_that_is_not_as_it_should_be_is_refused_by_both(repository, slip):
    base, changes, *_ = slip
    files = {name: text for name, text in BASES[base].items() if changes.get(name, "") is not GONE}
    given = {name: text for name, text in changes.items() if text is not GONE and name[-1] != "/"}
    folder = repository(files | given)
    for name in changes:
        if name.endswith("/"):
            (folder / name).mkdir()
    assert agree(folder) != set()


def serve(folder):
    """Start a server of that folder, and end it. Raises LoadFailed, naming what is wrong first."""
    with inferd.Server(model_repository=[str(folder)], log_info=False):
        pass


@pytest.mark.parametrize(
    "value",
    [one for one in VALUES if one[0] == "ensemble"],
    ids=lambda value: f"{value[0]}: {value[2][:40]}",
)
def test_an_ensemble_that_does_not_fit_is_refused_by_both(repository, value):
    _, files = breaking(*value[:3])
    folder = repository(files)
    assert "error" in {one.level for one in check_paths([folder], USUAL).findings}
    with pytest.raises(LoadFailed, match="'e'"):
        serve(folder)


def test_a_good_ensemble_is_served(repository):
    serve(repository(BASES["ensemble"]))
