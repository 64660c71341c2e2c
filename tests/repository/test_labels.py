import os

import pytest

from inferd.config.model import ModelConfig, ModelOutput
from inferd.errors import InvalidConfig
from inferd.repository.contents import MAX_LABEL_BYTES, read_labels
from inferd.tensor.dtype import DataType


def config_of(**filenames):
    outputs = (
        ModelOutput(name, DataType.FP32, (4,), label_filename=filename)
        for name, filename in filenames.items()
    )
    return ModelConfig("m", output=tuple(outputs))


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "m"
    inside.mkdir()
    return inside


def complaint(folder, filename):
    with pytest.raises(InvalidConfig) as caught:
        read_labels(folder, config_of(Y=filename))
    assert str(folder) not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"ant\nbee\n", [b"ant", b"bee"]),
        (b"ant\nbee", [b"ant", b"bee"]),
        (b"ant\r\nbee\r\n", [b"ant", b"bee"]),
        (b"ant\n\n bee \n\n", [b"ant", b"", b" bee ", b""]),
        (b"\n", [b""]),
        (b"", []),
        (b"\xff\x00", [b"\xff\x00"]),
    ],
)
def test_a_label_is_a_line(folder, content, labels):
    (folder / "labels.txt").write_bytes(content)
    assert read_labels(folder, config_of(Y="labels.txt")) == {"Y": labels}


def test_each_output_has_its_own_file_or_none(folder):
    (folder / "more").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "more" / "b.txt").write_text("b")
    found = read_labels(folder, config_of(A="a.txt", B="more/b.txt", C=""))
    assert found == {"A": [b"a"], "B": [b"b"]}


@pytest.mark.parametrize("filename", ["none.txt", "folder", "pipe", "a\x00b", "x" * 5000])
def test_what_is_no_file_is_refused(folder, filename):
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    assert "there is no such file" in complaint(folder, filename)


def test_a_file_that_leads_out_of_the_folder_is_refused(folder):
    (folder.parent / "secret").write_text("secret")
    (folder / "link").symlink_to("../secret")
    text = "model 'm': label_filename '{}' leads out of the model's folder"
    for filename in ("link", "../secret", str(folder.parent / "secret")):
        assert complaint(folder, filename) == text.format(filename)


def test_links_inside_the_folder_are_followed(folder, tmp_path):
    (folder / "labels.txt").symlink_to("data/labels.txt")
    (folder / "data").mkdir()
    (folder / "data" / "labels.txt").write_text("ant")
    (tmp_path / "other name").symlink_to(folder)
    assert read_labels(tmp_path / "other name", config_of(Y="labels.txt")) == {"Y": [b"ant"]}


@pytest.mark.slow
def test_labels_have_a_limit(folder):
    (folder / "labels.txt").write_bytes(b"\n" * MAX_LABEL_BYTES)
    assert len(read_labels(folder, config_of(Y="labels.txt"))["Y"]) == MAX_LABEL_BYTES
    (folder / "labels.txt").write_bytes(b"\n" * (MAX_LABEL_BYTES + 1))
    assert complaint(folder, "labels.txt").endswith(
        "is larger than the 16777216 bytes labels may have"
    )
