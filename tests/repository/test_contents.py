import os

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.contents import read_inside


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "m"
    (inside / "more").mkdir(parents=True)
    (inside / "more" / "data").write_bytes(b"0123456789")
    return inside


@pytest.mark.parametrize(
    ("size", "content"), [(100, b"0123456789"), (10, b"0123456789"), (3, b"012")]
)
def test_a_file_is_read_up_to_a_size(folder, size, content):
    assert read_inside(folder, "more/data", "here", size) == content


@pytest.mark.parametrize("filename", ["none", "more", "pipe", "a\x00b", "x" * 5000])
def test_what_is_no_file_is_refused(folder, filename):
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidConfig, match=r"^here names '.*', and there is no such file$") as got:
        read_inside(folder, filename, "here", 9)
    assert str(folder) not in got.value.message


@pytest.mark.parametrize("filename", ["../outside", "link", "more/../../outside"])
def test_what_lies_outside_is_refused(folder, filename):
    (folder.parent / "outside").write_text("secret")
    (folder / "link").symlink_to(folder.parent / "outside")
    with pytest.raises(InvalidConfig, match=r"leads out of the model's folder$"):
        read_inside(folder, filename, "here", 9)


@pytest.mark.parametrize(
    "filename", ["../nothing", "/nowhere/at all", "more/../../nothing", "none/../../outside"]
)
def test_nobody_is_told_what_exists_outside(folder, filename):
    (folder.parent / "outside").write_text("secret")
    with pytest.raises(InvalidConfig, match=r"leads out of the model's folder$"):
        read_inside(folder, filename, "here", 9)
