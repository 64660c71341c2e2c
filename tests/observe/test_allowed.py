import os

import pytest

from inferd.errors import InvalidRequest, Unsupported
from inferd.observe.allowed import AllowedFolder, open_log, open_plain


@pytest.mark.parametrize("name", ["log", "a.b-c_1.json", "x" * 200])
def test_a_plain_name_lies_in_the_folder(tmp_path, name):
    assert AllowedFolder(tmp_path, "--here").place("log_file", name) == tmp_path / name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", ".rc", "-x", "/etc/x", "../x", "a/b", "a\\b", "a b", "ä"),
        "x\n",
        "\0",
        201 * "x",
    ],
)
def test_anything_else_is_refused_naming_setting_and_option(tmp_path, name):
    with pytest.raises(InvalidRequest, match=r"log_file must be a file name.*--here") as caught:
        AllowedFolder(tmp_path, "--here").place("log_file", name)
    assert str(tmp_path) not in caught.value.message


def test_without_a_folder_nothing_is_allowed():
    with pytest.raises(Unsupported, match=r"trace file location can not be updated.*--here"):
        AllowedFolder(None, "--here").place("trace_file", "x")


def test_what_must_be_new_may_not_be_there_unless_it_was_named_before(tmp_path):
    folder = AllowedFolder(tmp_path, "--here")
    path = folder.place("trace_file", "mine", must_be_new=True)
    path.write_text("[]")
    assert folder.place("trace_file", "mine", must_be_new=True) == path
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("theirs", "link"):
        with pytest.raises(InvalidRequest, match=f"there is a file '{name}' already"):
            folder.place("trace_file", name, must_be_new=True)
    assert folder.place("log_file", "theirs") == tmp_path / "theirs"


def test_clients_may_name_so_many_files(tmp_path):
    folder = AllowedFolder(tmp_path, "--here", max_names=2)
    for name in ("a", "b", "a"):
        folder.place("log_file", name)
    with pytest.raises(InvalidRequest, match="log_file: clients have named 2 files"):
        folder.place("log_file", "c")
    assert folder.place("log_file", "b") == tmp_path / "b"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="link"):
        open_log(tmp_path / "link", is_named_by_client=True)
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("has_reader", [False, True])
def test_a_pipe_is_refused_without_waiting(tmp_path, has_reader):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK) if has_reader else None
    with pytest.raises(OSError, match=r"pipe|not a plain file"):
        open_log(tmp_path / "pipe", is_named_by_client=True)
    if reader is not None:
        os.close(reader)


def test_a_file_that_is_there_is_appended_to(tmp_path):
    (tmp_path / "log").write_text("old\n")
    with open_log(tmp_path / "log", is_named_by_client=True) as file:
        file.write("new\n")
    assert (tmp_path / "log").read_text() == "old\nnew\n"


def test_what_the_operator_names_may_be_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with open_log(tmp_path / "link", is_named_by_client=False) as file:
        file.write("text")
    assert (tmp_path / "log").read_text() == "text"


def test_flags_are_added(tmp_path):
    (tmp_path / "file").write_text("old")
    os.close(open_plain(tmp_path / "file", os.O_TRUNC))
    assert (tmp_path / "file").read_text() == ""
