"""What is built has the same bits wherever and whenever it is built, and all that it needs."""

import os
import tarfile
import zipfile

import pytest

pytestmark = pytest.mark.slow
KINDS = [("sdist", "."), ("wheel", "."), ("wheel", "packages/inferd-client")]


@pytest.mark.parametrize(("kind", "project"), KINDS)
def test_two_builds_have_the_same_bits(copy_of_repository, build, tmp_path, kind, project):
    first = build(copy_of_repository("first") / project, kind, tmp_path / "one")
    elsewhere = copy_of_repository("a folder of another name")
    for path in elsewhere.rglob("*"):  # whoever cloned may have other habits
        path.chmod(path.stat().st_mode & ~0o022 if path.is_dir() else 0o600)
        os.utime(path, (1, 1))
    second = build(elsewhere / project, kind, tmp_path / "other")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_source_archive_builds_the_wheel_that_the_repository_does(
    copy_of_repository, build, tmp_path
):
    repository = copy_of_repository("repository")
    archive = build(repository, "sdist", tmp_path / "archive")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    wheel = build(repository, "wheel", tmp_path / "one")
    again = build(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path / "other")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.read_bytes() == again.read_bytes()


def test_the_source_archive_can_compile_and_has_nothing_else(copy_of_repository, build, tmp_path):
    archive = build(copy_of_repository("repository"), "sdist", tmp_path / "archive")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    tools = {name for name in names if name.startswith("tools/")}
    assert tools == {
        f"tools/{n}" for n in ("compile.ini", "compile_hook.py", "compiled_modules.txt")
    }
    assert {name.partition("/")[0] for name in names} == {
        *("src", "tools", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"),
        *("PKG-INFO", ".gitignore"),
    }


def test_the_wheel_has_the_files_that_are_no_modules(copy_of_repository, build, tmp_path):
    wheel = build(copy_of_repository("repository"), "wheel", tmp_path / "wheel")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("py.typed", "wire/openapi.json", "wire/proto/grpc_service.binpb"):
        assert f"inferd/{name}" in names
    assert any(name.startswith("inferd/ui/static/") for name in names)
    assert "inferd_convert/caffe2/backend.py" in names
    assert [name for name in names if not name.startswith("inferd")] == []
