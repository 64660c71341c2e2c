"""Which models look other than before, and whose files are the same."""

import os

import pytest

from inferd.core.interfaces import ModelFiles
from inferd.errors import NotLoadable
from inferd.repository.repositories import Repositories
from inferd.repository.watch import (
    ModelWatch,
    content_digest,
    file_prints,
    lasting_prints,
    marks_of,
)

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


@pytest.fixture
def model(tmp_path):
    """A model's folder with two versions and a file of its own."""
    for path in ("m/1/model.onnx", "m/1/more/data", "m/2/model.onnx", "m/labels.txt"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return tmp_path / "m"


def test_the_same_bytes_elsewhere_and_at_another_time_are_the_same(model, tmp_path):
    before = content_digest(model, 1)
    moved = model.rename(tmp_path / "moved")
    os.utime(moved / "1" / "model.onnx", (1, 1))
    assert content_digest(moved, 1) == before
    assert len(before) == 32


@pytest.mark.parametrize("path", ["1/model.onnx", "1/more/data", "labels.txt", "1/new", "new"])
def test_each_file_of_the_version_and_of_the_model_matters(model, path):
    before = content_digest(model, 1)
    (model / path).write_text("changed")
    assert content_digest(model, 1) != before


def test_a_file_under_another_name_matters(model):
    before = content_digest(model, 1)
    (model / "1" / "model.onnx").rename(model / "1" / "other.onnx")
    assert content_digest(model, 1) != before


@pytest.mark.parametrize("path", ["2/model.onnx", "3/new", "1/__pycache__/x", "1/.hidden", "1/x~"])
def test_other_versions_and_what_programs_leave_behind_do_not_matter(model, path):
    before = content_digest(model, 1)
    (model / path).parent.mkdir(exist_ok=True)
    (model / path).write_text("changed")
    assert content_digest(model, 1) == before


def test_versions_differ(model):
    assert content_digest(model, 1) != content_digest(model, 2)


def test_a_bare_file_is_all_there_is(tmp_path):
    file = tmp_path / "a.onnx"
    file.write_text("a")
    before = content_digest(tmp_path, 1, file)
    (tmp_path / "b.onnx").write_text("b")
    assert content_digest(tmp_path, 1, file) == before
    file.write_text("c")
    assert content_digest(tmp_path, 1, file) != before


def test_a_folder_in_the_place_of_the_file_counts_with_all_in_it(model):
    before = content_digest(model.parent, 1, model)
    (model / "1" / "model.onnx").write_text("changed")
    assert content_digest(model.parent, 1, model) != before


def test_a_file_that_cannot_be_read_is_an_error(model):
    (model / "1" / "dangling").symlink_to("nowhere")
    content_digest(model, 1)  # one that is not there is no file
    os.mkfifo(model / "1" / "pipe")
    with pytest.raises(OSError, match="pipe"):
        content_digest(model, 1)


LARGE = 3 << 20


@pytest.mark.parametrize("size", [0, 10, 1 << 20, LARGE])
def test_a_print_follows_the_content_where_size_and_time_are_the_same(model, size):
    file = model / "1" / "weights"

    def prints_of(byte):
        file.write_bytes(byte * size)
        os.utime(file, (1, 1))
        return file_prints(model, 1)

    before = prints_of(b"a")
    assert prints_of(b"a") == before
    assert (prints_of(b"b") == before) == (size == 0)


def test_a_small_file_that_is_copied_anew_has_its_print(model):
    before = file_prints(model, 1)
    for path in ("1/model.onnx", "labels.txt"):
        os.utime(model / path, (1, 1))
    assert file_prints(model, 1) == before


def test_the_time_of_a_large_file_counts(model):
    file = model / "1" / "weights"
    file.write_bytes(bytes(LARGE))
    before = file_prints(model, 1)
    os.utime(file, (1, 1))
    assert file_prints(model, 1) != before


def test_a_change_anywhere_in_a_large_file_is_told_by_its_time(model):
    file = model / "1" / "weights"
    file.write_bytes(bytes(LARGE))
    os.utime(file, (1, 1))
    before = file_prints(model, 1)
    with file.open("r+b") as opened:
        opened.seek(LARGE // 2 + 12345)
        opened.write(b"x")
    assert file_prints(model, 1) != before


def test_very_many_files_have_one_print(model):
    for number in range(200):
        (model / "1" / f"{number}").touch()
    [before] = file_prints(model, 1)
    (model / "1" / "7").write_text("changed")
    assert file_prints(model, 1) != [before]


def test_a_pipe_is_not_read(model):
    os.mkfifo(model / "1" / "pipe")
    assert len(file_prints(model, 1)) == 4


def test_what_lasts_is_the_model_file_and_code_beside_it(model):
    version = model / "1"
    (version / "model.py").write_text("import helper")
    (version / "helper.py").write_text("A = 1")
    files = ModelFiles(model, 1, version, version / "model.py")
    before = lasting_prints(files)
    (version / "log.txt").write_text("written by the model")
    (version / "more.py").touch()
    assert lasting_prints(files) > before
    (version / "helper.py").write_text("A = 2")
    assert not lasting_prints(files) >= before
    onnx = ModelFiles(model, 1, version, version / "model.onnx")
    assert len(lasting_prints(onnx)) == 1
