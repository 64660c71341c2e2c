"""Which models look other than before."""

import os

import pytest

from inferd.errors import NotLoadable
from inferd.repository.repositories import Repositories
from inferd.repository.watch import ModelWatch, marks_of

NAMES = ("a", "b")


@pytest.fixture
def folder(add_model, tmp_path):
    """Model a of a repository that has b as well; both have versions 1 and 2 and a config."""
    for name in NAMES:
        add_model(tmp_path / "models", name, "max_batch_size: 4", versions=(1, 2))
    (tmp_path / "models" / "a" / "0").mkdir()
    return tmp_path / "models" / "a"


@pytest.fixture
def watch(folder):
    watch = ModelWatch(Repositories([folder.parent]))
    assert watch.look() == list(NAMES)
    assert watch.look() == []
    return watch


def touch(path, ns=1_000_000):
    """Change the time of a file, without sleeping for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    before = path.stat().st_mtime_ns
    os.utime(path, ns=(before + ns, before + ns))


CHANGES = {
    "a newer file": lambda folder: touch(folder / "1" / "model.onnx"),
    "an older file": lambda folder: touch(folder / "1" / "model.onnx", -1_000_000_000),
    "a new version": lambda folder: touch(folder / "3" / "model.onnx"),
    "a new empty version": lambda folder: (folder / "3").mkdir(),
    "an empty version by another name": lambda folder: (folder / "0").rename(folder / "7"),
    "an empty version less": lambda folder: (folder / "0").rmdir(),
    "a new label file": lambda folder: touch(folder / "labels.txt"),
    "another config": lambda folder: touch(folder / "config.pbtxt"),
    "a config by name": lambda folder: touch(folder / "configs" / "large.pbtxt"),
    "a file less": lambda folder: (folder / "2" / "model.onnx").unlink(),
    "another name": lambda folder: (folder / "2" / "model.onnx").rename(folder / "2" / "m.onnx"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_reported_once(watch, folder, change):
    change(folder)
    assert watch.look() == ["a"]
    assert watch.look() == []


def test_code_that_lies_elsewhere_is_part_of_the_model(watch, tmp_path):
    code = tmp_path / "backends" / "own"
    touch(code / "model.py")
    watch.follow("a", code)
    assert watch.look() == ["a"]
    assert watch.look() == []
    touch(code / "model.py")
    assert watch.look() == ["a"]
    watch.follow("a", None)
    assert watch.look() == ["a"]
    touch(code / "model.py")
    assert watch.look() == []


@pytest.mark.parametrize(
    "noise", ["1/__pycache__/model.cpython-311.pyc", ".config.pbtxt.swp", "config.pbtxt~", "1/.x"]
)
def test_caches_and_backups_are_no_change(watch, folder, noise):
    touch(folder / noise)
    os.utime(folder / "1")
    os.utime(folder)
    assert watch.look() == []


def test_models_that_come_and_go_are_reported(watch, folder, add_model):
    add_model(folder.parent, "c")
    assert watch.look() == ["c"]
    folder.rename(folder.parent.parent / "away")
    assert watch.look() == ["a"]
    assert watch.look() == []


def test_what_is_forgotten_is_reported_again_also_when_it_is_gone(watch, folder):
    watch.forget("a")
    watch.forget("gone")
    assert watch.look() == ["a", "gone"]
    assert watch.look() == []


def test_a_repository_that_cannot_be_read_has_not_changed(watch, folder):
    folder.parent.rename(folder.parent.parent / "away")
    with pytest.raises(NotLoadable):
        watch.look()
    (folder.parent.parent / "away").rename(folder.parent)
    assert watch.look() == []


def test_a_bare_file_is_watched_alone(tmp_path):
    file = tmp_path / "net.onnx"
    file.write_text("")
    watch = ModelWatch(Repositories([file]))
    assert watch.look() == ["net"]
    (tmp_path / "other").write_text("")
    assert watch.look() == []
    touch(file)
    assert watch.look() == ["net"]


def test_marks_tell_versions_shared_files_and_configurations_apart(folder):
    def changed(path):
        before = marks_of(folder)
        touch(folder / path)
        after = marks_of(folder)
        versions = [v for v in after.versions if after.versions[v] != before.versions.get(v)]
        return (before.config != after.config, before.shared != after.shared, versions)

    assert changed("config.pbtxt") == (True, False, [])
    assert changed("configs/x.pbtxt") == (True, False, [])
    assert changed("labels.txt") == (False, True, [])
    assert changed("warmup/data") == (False, True, [])
    assert changed("2/model.onnx") == (False, False, ["2"])
    assert changed("9/deep/er/file") == (False, False, ["9"])
    assert changed("01/file") == (False, True, [])


def test_a_name_that_is_no_unicode_can_be_watched(folder, watch):
    touch(folder / "1" / os.fsdecode(b"\xff"))
    assert watch.look() == ["a"]
