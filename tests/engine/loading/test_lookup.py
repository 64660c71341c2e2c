import importlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

from inferd.backends.identity import IdentityBackend
from inferd.backends.worker.hosting import HostedBackend
from inferd.engine.loading.lookup import (
    ENTRY_POINTS,
    backend_named,
    given_model,
    models_in,
    python_based,
)
from inferd.errors import InvalidConfig, Unsupported


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("onnxruntime", HostedBackend),
        ("onnx_onnxv1", HostedBackend),
        ("onnxruntime_onnx", HostedBackend),
        ("identity", IdentityBackend),
    ],
)
def test_a_backend_is_found_by_its_name_or_its_platforms(name, kind):
    assert type(backend_named(name)) is kind


@pytest.mark.parametrize("name", ["repeat", "square"])
def test_test_backends_are_found(name):
    assert type(backend_named(name)).__name__ == f"{name.title()}Backend"


def test_each_call_gives_a_backend_of_its_own():
    assert backend_named("identity") is not backend_named("identity")


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        InvalidConfig,
        match="no backend 'magic', known are: caffe2, catboost, faulty, fil, hosted_rows, ",
    ):
        backend_named("magic")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vllm", "; its model.py would have to lie in a --backend-directory, which is not given"),
        ("dali", "; Triton's is a library in C++, which cannot be used here"),
    ],
)
def test_a_backend_of_tritons_that_is_not_here_is_told_as_such(name, told):
    with pytest.raises(InvalidConfig) as caught:
        backend_named(name)
    assert caught.value.message.startswith(f"there is no backend '{name}', known are: ")
    assert caught.value.message.endswith(told)


def installed(folder, entry, module=""):
    """Lay out in `folder` what installing a package with one entry point leaves behind."""
    (folder / "their_backend.py").write_text(module)
    record = folder / "their_backend-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: their-backend\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entry}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("their_backend", None)
    importlib.invalidate_caches()


THEIRS = """
from inferd.core.traits import Traits

class Theirs:
    traits = Traits()
"""


def test_another_package_adds_a_backend(site):
    installed(site, "theirs = their_backend:Theirs", THEIRS)
    assert type(backend_named("theirs")).__module__ == "their_backend"
    with pytest.raises(InvalidConfig, match=r"repeat, .*theirs"):
        backend_named("magic")


@pytest.mark.parametrize("body", ["bounded = True", "traits = {'is_bounded': True}"])
def test_a_backend_that_does_not_say_what_it_promises_is_refused(site, body):
    installed(site, "theirs = their_backend:Theirs", f"class Theirs:\n    {body}\n")
    with pytest.raises(Unsupported) as caught:
        backend_named("theirs")
    assert caught.value.message == (
        "backend 'theirs', their_backend:Theirs, has no attribute 'traits' that is "
        "inferd.core.traits.Traits"
    )


def test_another_package_does_not_replace_ours(site):
    installed(site, "identity = their_backend:Theirs", "class Theirs: ...\n")
    assert type(backend_named("identity")) is IdentityBackend


def test_a_missing_package_says_what_to_install(site):
    installed(site, "theirs = their_backend:Theirs", "import framework_nobody_has\n")
    with pytest.raises(
        Unsupported,
        match=r"'theirs' needs .* 'framework_nobody_has': pip install framework_nobody_has$",
    ):
        backend_named("theirs")


def test_a_missing_framework_says_which_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(Unsupported, match=r"'torch': pip install 'inferd\[torch\]'$"):
        backend_named("pytorch_torchscript")


@pytest.mark.parametrize(("name", "package"), [("pytorch", "torch"), ("tensorflow",) * 2])
def test_a_framework_that_may_run_in_workers_is_found_without_being_imported(site, name, package):
    if find_spec(package) is None:  # then one that cannot be imported stands for it
        (site / f"{package}.py").write_text("raise SystemExit('imported')\n")
        importlib.invalidate_caches()
    assert type(backend_named(name)) is HostedBackend


def test_no_framework_is_imported_before_a_model_needs_it():
    script = (
        "import sys; from inferd.engine.loading.lookup import backend_named; "
        "assert not any(name.startswith('inferd.backends.') for name in sys.modules); "
        "backend_named('onnxruntime'); assert 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_code_of_our_own_python_based_backend_is_there():
    assert "torch.nn.Module" in python_based("pytorch", None)._code.read_text()


def test_a_function_is_found_to_be_a_model():
    def double(x: int) -> int: ...

    assert given_model(double).name == "double"
    with pytest.raises(InvalidConfig, match="not of type int"):
        given_model(7)


def test_a_files_models_are_found(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("import inferd\n\n@inferd.model\ndef f(x: int) -> int: ...\n")
    assert [model.name for model in models_in(app)] == ["f"]
