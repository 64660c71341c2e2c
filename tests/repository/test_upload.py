"""Files that clients sent: where they go, and what does not go anywhere."""

import os
import tempfile

import pytest

from inferd.errors import InvalidRequest, NotLoadable
from inferd.repository import upload as upload_module
from inferd.repository.upload import MAX_DEPTH, MAX_PATH_BYTES, Uploads


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_files_lie_below_a_folder_of_their_own(folder):
    upload = Uploads(100).store({"1/model.onnx": b"abc", "labels.txt": memoryview(b"de")})
    assert upload.folder.parent == folder
    assert (upload.folder / "1" / "model.onnx").read_bytes() == b"abc"
    assert (upload.folder / "labels.txt").read_bytes() == b"de"
    assert upload.size_bytes == 5
    assert upload.folder.stat().st_mode & 0o77 == 0


def test_files_are_deleted_when_nobody_holds_them(folder):
    uploads = Uploads(3)
    upload = uploads.store({"1/a": b"abc"})
    upload.hold()
    upload.hold()
    assert not upload.release()
    assert upload.release()
    upload.discard()
    assert list(folder.iterdir()) == []
    uploads.store({"1/a": b"abc"})


def test_all_uploads_together_have_one_limit(folder):
    uploads = Uploads(5)
    uploads.store({"1/a": b"abc"})
    with pytest.raises(InvalidRequest) as caught:
        uploads.store({"1/a": b"ab", "1/b": b"c"})
    assert caught.value.message == (
        "the files sent have 3 bytes, there is room for 2 (--model-upload-max-bytes)"
    )
    assert len(list(folder.iterdir())) == 1
    uploads.store({"1/a": b"ab"})


def test_closing_deletes_what_is_left(folder):
    uploads = Uploads(6)
    uploads.store({"1/a": b"abc"})
    retained = uploads.store({"1/a": b"abc"})
    retained.discard()
    uploads.close()
    assert list(folder.iterdir()) == []
    uploads.store({"1/a": b"abcdef"})


BAD = [
    "",
    ".",
    "/",
    "..",
    "../x",
    "1/../../x",
    "1/..",
    "/etc/passwd",
    "//x",
    "C:x",
    "C:\\x",
    "..\\x",
    "1\\..\\..\\x",
    "1/a\0b",
    "x" * 256,
    "1/" + "ä" * 128,
    "/".join("d" * (MAX_DEPTH + 1)),
]


@pytest.mark.parametrize("path", BAD)
def test_a_path_that_leads_out_or_nowhere_is_refused(folder, path):
    with pytest.raises(InvalidRequest, match="leads nowhere, expected a path below"):
        Uploads(100).store({"1/good": b"", path: b"x"})
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("other", ["1//a", "1/./a", "1/a/", "1/a/b", "1"])
def test_paths_that_are_in_each_others_way_are_refused(folder, other):
    with pytest.raises(InvalidRequest, match="same path, or one lies inside the other"):
        Uploads(100).store({"1/a": b"", other: b""})
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", ["1/.hidden", "%2e%2e/x", "a b/ü", "...", "1/..x", "-rf"])
def test_odd_names_are_names(path):
    upload = Uploads(100).store({path: b"x"})
    assert (upload.folder / path).read_bytes() == b"x"


def test_files_that_cannot_be_written_leave_nothing_behind(folder):
    uploads = Uploads(3)
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):  # the superuser may write everywhere
            folder.rmdir()
        with pytest.raises(NotLoadable, match="the files sent cannot be stored: "):
            uploads.store({"1/a": b"abc"})
    finally:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    uploads.store({"1/a": b"abc"})


def test_what_was_written_before_a_failure_is_deleted(folder, monkeypatch):
    monkeypatch.setattr(upload_module, "MAX_PATH_BYTES", 10_000)  # the system has a limit, too
    uploads = Uploads(3)
    with pytest.raises(NotLoadable, match="File name too long"):
        uploads.store({"1/a": b"a", "/".join(["d" * 255] * MAX_DEPTH): b""})
    assert list(folder.iterdir()) == []
    uploads.store({"1/a": b"abc"})


def test_empty_files_are_counted_over_all_uploads(monkeypatch, folder):
    monkeypatch.setattr(upload_module, "MAX_FILES", 3)
    uploads = Uploads(0)
    first = uploads.store({"1/a": b"", "1/b": b""})
    with pytest.raises(InvalidRequest, match="2 files are sent, there is room for 1; all models"):
        uploads.store({"1/a": b"", "1/b": b""})
    with pytest.raises(InvalidRequest, match="4 files are sent, there is room for 3"):
        uploads.store({f"1/{n}": b"" for n in range(4)})
    first.discard()
    assert list(folder.iterdir()) == []
    uploads.store({"1/a": b"", "1/b": b"", "1/c": b""})


def test_a_path_is_no_longer_than_it_may_be():
    longest = "/".join(["x" * 200] * 5)
    Uploads(0).store({longest + "y" * (MAX_PATH_BYTES - len(longest)): b""})
    with pytest.raises(InvalidRequest) as caught:
        Uploads(0).store({longest + "y" * (MAX_PATH_BYTES - len(longest) + 1): b""})
    assert "is longer than 1024 bytes" in caught.value.message
    assert len(caught.value.message) < 300
