import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from inferd.backends.worker.environments.cache import DONE
from inferd.backends.worker.environments.choice import Environments, default_cache
from inferd.backends.worker.environments.environment import Environment
from inferd.core.interfaces import ModelFiles
from inferd.errors import InvalidConfig, Unsupported

OFFLINE = "--no-index\n--find-links ../../wheels\n"


@pytest.fixture
def environments(cache):
    return Environments(cache, 120)


def packed(folder, path, prefix=""):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, prefix or ".")
    shutil.rmtree(folder)
    return path


def printed(environment, code):
    done = subprocess.run(
        [environment.python, "-c", code],
        env=environment.all_variables(),
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip()


# --- none ---


def test_a_model_that_asks_for_nothing_runs_on_the_servers_python(environments, model, cache):
    assert environments.resolve(*model()) == Environment()
    assert not cache.exists()


def test_a_project_that_only_sets_up_tools_asks_for_nothing(environments, model):
    for text in ("[tool.ruff]\n", "project = 1\n"):
        assert environments.resolve(*model({"pyproject.toml": text})) == Environment()


def test_requirements_can_be_left_aside(environments, model):
    found = model({"requirements.txt": "nothing-of-that-name"}, inferd_environment="server")
    assert environments.resolve(*found) == Environment()


def test_what_lies_beside_a_bare_file_is_somebody_elses(environments, model):
    files, config = model({"requirements.txt": "nothing-of-that-name"})
    bare = ModelFiles(files.folder, 1, files.folder, files.folder / "model.py")
    assert environments.resolve(bare, config) == Environment()


# --- given ---


@pytest.mark.parametrize("text", ["env", "$$TRITON_MODEL_DIRECTORY/env"])
def test_an_environment_is_found_in_the_models_folder(environments, model, venv, text):
    files, config = model(EXECUTION_ENV_PATH=text)
    folder = venv("env", files.folder)
    assert environments.resolve(files, config).python == folder / "bin/python"


def test_an_environment_is_found_anywhere(environments, model, venv):
    folder = venv()
    found = environments.resolve(*model(EXECUTION_ENV_PATH=str(folder)))
    assert found.python == folder / "bin/python"


@pytest.mark.parametrize("prefix", ["", "env-1.0"])
def test_a_packed_environment_is_unpacked_once(environments, model, venv, cache, prefix):
    files, config = model(EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    folder = venv()
    (folder / "mark").write_text("here")
    packed(folder, files.folder / "env.tar.gz", prefix)
    found = environments.resolve(files, config)
    root = found.python.parent.parent
    assert root.is_relative_to(cache)
    (root / "mark").write_text("changed")
    assert environments.resolve(files, config) == found
    assert (root / "mark").read_text() == "changed"


def test_the_mark_of_an_environment_that_was_packed_is_left_out(
    environments, model, venv, monkeypatch
):
    files, config = model(EXECUTION_ENV_PATH="env.tar.gz")
    folder = venv()
    (folder / DONE).touch()
    packed(folder, files.folder / "env.tar.gz")
    marked = []
    monkeypatch.setattr(
        Environments, "_finish", lambda _self, root, _place: marked.append((root / DONE).exists())
    )
    environments.resolve(files, config)
    assert marked == [False]


@pytest.mark.slow
def test_another_archive_of_that_name_is_unpacked_anew(environments, model, venv):
    files, config = model(EXECUTION_ENV_PATH="env.tar.gz")
    packed(venv(), files.folder / "env.tar.gz")
    before = environments.resolve(files, config)
    folder = venv()
    (folder / "more").write_text("more")
    packed(folder, files.folder / "env.tar.gz")
    assert environments.resolve(files, config).python != before.python


@pytest.mark.slow
def test_condas_own_program_puts_its_paths_right(environments, model, venv):
    files, config = model(EXECUTION_ENV_PATH="env.tar.gz")
    folder = venv()
    code = "import pathlib\npathlib.Path('unpacked').write_text(__file__)\n"
    (folder / "bin" / "conda-unpack").write_text(code)
    packed(folder, files.folder / "env.tar.gz")
    root = environments.resolve(files, config).python.parent.parent
    assert (root / "unpacked").read_text() == str(root / "bin" / "conda-unpack")


def test_a_packed_environment_that_is_of_no_use_leaves_nothing(environments, model, venv, cache):
    files, config = model(EXECUTION_ENV_PATH="env.tar.gz")
    folder = venv()
    (folder / "bin" / "python").unlink()
    packed(folder, files.folder / "env.tar.gz")
    with pytest.raises(InvalidConfig, match=r"EXECUTION_ENV_PATH 'env.tar.gz' has no interpreter"):
        environments.resolve(files, config)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("text", ["nothing", "/no/such/env.tar.gz", "a" * 5000])
def test_an_environment_that_is_not_there_is_told_by_its_name(environments, model, text):
    name = Path(text).name
    with pytest.raises(
        InvalidConfig, match=f"^model 'm': EXECUTION_ENV_PATH '{name}' is not there"
    ):
        environments.resolve(*model(EXECUTION_ENV_PATH=text))


# --- made ---


@pytest.mark.slow
def test_requirements_are_made_an_environment_once(environments, model, wheel):
    wheel("numpy", "9.0")
    wheel("tiny", code="answer = 42")
    files, config = model({"requirements.txt": OFFLINE + "tiny\n"})
    made = environments.resolve(files, config)
    assert printed(made, "import tiny; print(tiny.answer)") == "42"
    (made.python.parent.parent / "mark").touch()
    assert environments.resolve(files, config) == made
    assert (made.python.parent.parent / "mark").exists()
    (files.folder / "requirements.txt").write_text(OFFLINE + "tiny\n# changed\n")
    assert environments.resolve(files, config).python != made.python


@pytest.mark.slow
def test_a_project_is_made_an_environment_of_its_dependencies(environments, model, wheel, tmp_path):
    folder = wheel("numpy", "9.0")
    wheel("tiny", code="answer = 42")
    project = f"""
[project]
name = "m"
version = "0"
requires-python = ">={sys.version_info[0]}.{sys.version_info[1]}"
dependencies = ["tiny"]
[tool.uv]
no-index = true
find-links = ["{folder}"]
"""
    made = environments.resolve(*model({"pyproject.toml": project}))
    assert printed(made, "import tiny; print(tiny.answer)") == "42"


OTHERS = [
    path
    for path in sorted(Path(sys.base_prefix).parent.glob("3.*/bin/python"))
    if path.parent.parent != Path(sys.base_prefix)
]
"""Interpreters beside this one, as version managers keep them."""


@pytest.mark.slow
@pytest.mark.parametrize("python", OTHERS, ids=lambda path: path.parent.parent.name)
def test_another_python_may_be_wanted(environments, model, wheel, python):
    wheel("numpy", "9.0")
    found = model({"requirements.txt": OFFLINE}, inferd_python=str(python))
    version = tuple(map(int, python.parent.parent.name.split(".")[:2]))
    if version < (3, 9):
        with pytest.raises(InvalidConfig, match=r"has Python 3\.\d, expected 3.9 or newer|failed"):
            environments.resolve(*found)
    else:
        made = environments.resolve(*found)
        assert printed(made, "import sys; print(*sys.version_info[:2])") == "{} {}".format(*version)


@pytest.mark.slow
def test_a_python_alone_makes_an_environment_with_numpy(
    environments, model, cache, wheel, tmp_path, monkeypatch
):
    wheel("numpy", "9.0")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    made = environments.resolve(*model(inferd_python=sys.executable))
    assert made.python.is_relative_to(cache)
    told = printed(made, "from importlib.metadata import version; print(version('numpy'))")
    assert told == "9.0"


@pytest.mark.slow
def test_a_python_that_is_not_there_is_refused_without_a_file_too(environments, model):
    expected = "^model 'm': the environment of its parameter inferd_python failed"
    with pytest.raises(InvalidConfig, match=expected):
        environments.resolve(*model(inferd_python="99.1"))
    assert environments.resolve(*model(inferd_python="99.1", inferd_environment="server")) == (
        Environment()
    )


@pytest.mark.slow
def test_a_version_file_says_which_python(environments, model, wheel):
    wheel("numpy", "9.0")
    files = {"requirements.txt": OFFLINE, ".python-version": "99.1\n"}
    with pytest.raises(
        InvalidConfig, match=r"^model 'm': the environment of its requirements.txt fail"
    ):
        environments.resolve(*model(files))


@pytest.mark.parametrize(
    ("files", "parameters", "complaint"),
    [
        (
            {"requirements.txt": "", "pyproject.toml": "[project]\nname = 'a'\n"},
            {},
            "model 'm' has a requirements.txt and a pyproject.toml with a project; keep one of",
        ),
        ({"pyproject.toml": "#" * (2 << 20)}, {}, "its pyproject.toml has more than 1048576"),
        ({"pyproject.toml": "= 1"}, {}, "model 'm': its pyproject.toml is not TOML"),
        ({"requirements.txt": "#" * (2 << 20)}, {}, "its requirements.txt has more than 1048576"),
        ({}, {"inferd_environment": "none"}, "is 'none', expected auto or server"),
    ],
)
def test_files_that_cannot_be_are_told(environments, model, files, parameters, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        environments.resolve(*model(files, **parameters))


def test_without_uv_it_is_told_how_to_get_it(environments, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unsupported, match=r"needs uv to be made: pip install 'inferd\[environ"):
        environments.resolve(*model({"requirements.txt": ""}))


def test_environments_are_kept_where_caches_are(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/inferd/environments")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/nobody")
    assert default_cache() == Path("/nobody/.cache/inferd/environments")


def test_who_has_no_home_needs_none_unless_there_is_something_to_keep(model, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a number without a name
    homeless = Environments(None, 120)
    assert homeless.resolve(*model()) == Environment()
    files, config = model({"env.tar.gz": ""}, EXECUTION_ENV_PATH="env.tar.gz")
    with pytest.raises(InvalidConfig, match=r"there is no home folder .*,environment-directory="):
        homeless.resolve(files, config)
