"""Archives and layers: what comes out, and what does not."""

import bz2
import gzip
import io
import tarfile

import pytest
from small_hub import tar_of, zip_of

from inferd.errors import NotLoadable
from inferd.repository.fetch import unpack as module
from inferd.repository.fetch.unpack import Unpacking

FILES = {"a/config.pbtxt": b"max_batch_size: 4", "./a/1/model.onnx": b"first" * 1000}
EXPECTED = {"a/config.pbtxt": b"max_batch_size: 4", "a/1/model.onnx": b"first" * 1000}


@pytest.fixture
def unpack(tmp_path):
    """unpack(*contents) unpacks archives into one folder, and returns it."""

    def run(*contents, is_layer=False, max_bytes=1 << 20):
        unpacking = Unpacking(tmp_path / "out", max_bytes)
        (tmp_path / "out").mkdir(exist_ok=True)
        for content in contents:
            (tmp_path / "archive").write_bytes(content)
            unpacking.unpack(tmp_path / "archive", "it", is_layer=is_layer)
        return tmp_path / "out"

    return run


@pytest.mark.parametrize(
    "content",
    [tar_of(FILES), tar_of(FILES, False), bz2.compress(tar_of(FILES, False)), zip_of(EXPECTED)],
    ids=["tar.gz", "tar", "tar.bz2", "zip"],
)
def test_files_come_out(unpack, tree, content):
    assert tree(unpack(content)) == EXPECTED


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "C:\\x", "..\\x", "a/.."])
@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_what_leads_out_is_refused_and_written_nowhere(unpack, tree, tmp_path, make, path):
    with pytest.raises(NotLoadable, match=r"'it' holds '.*', which leads out of it"):
        unpack(make({path: b"bad"}))
    assert b"bad" not in tree(tmp_path / "out").values()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "archive", "home"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(unpack, kind):
    with pytest.raises(NotLoadable, match="'it' holds 'a', which is a link or a device"):
        unpack(tar_of({}, links=[("a", "/etc/passwd")], kind=kind))


def test_a_link_in_a_zip_is_refused(unpack):
    import zipfile

    entry = zipfile.ZipInfo("a")
    entry.external_attr = 0o120777 << 16
    with pytest.raises(NotLoadable, match="'it' holds 'a', which is a link"):
        unpack(zip_of({entry: b"/etc/passwd"}))


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_a_bomb_is_not_unpacked(unpack, tree, make):
    bomb = make({"small": b"x", "large": b"\0" * 5_000_000})
    assert len(bomb) < 50_000
    with pytest.raises(NotLoadable, match="'it' has more than 100000 bytes unpacked"):
        unpack(bomb, max_bytes=100_000)


def test_the_limit_is_for_all_archives_together(unpack):
    one = tar_of({"x": b"x" * 600})
    with pytest.raises(NotLoadable, match="more than 1000 bytes"):
        unpack(one, one, max_bytes=1000)


def test_too_many_files_are_refused(unpack, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 3)
    with pytest.raises(NotLoadable, match="'it' has more than 3 files"):
        unpack(tar_of({str(number): b"" for number in range(4)}))


def test_a_header_that_would_fill_the_memory_is_not_read(unpack):
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    with pytest.raises(NotLoadable, match="'it' is no whole archive"):
        unpack(header.tobuf() + b"\0" * 4096)


def test_a_header_that_is_unpacked_to_much_is_not_read(unpack):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("x")
        entry.pax_headers = {"comment": "x" * 9_000_000}
        archive.addfile(entry)
    with pytest.raises(NotLoadable, match="'it' is no whole archive"):
        unpack(made.getvalue())


@pytest.mark.parametrize("size", [-512, -5000])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_header_of_a_size_below_zero_is_not_read(unpack, size, kind, pack):
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, size
    with pytest.raises(NotLoadable, match="'it' is no whole archive"):
        unpack(pack(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096))


@pytest.mark.parametrize("key", ["GNU.sparse.size", "GNU.sparse.map"])
def test_a_number_that_is_none_is_said(unpack, key):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("x")
        entry.pax_headers = {key: "a,b"}
        archive.addfile(entry)
    with pytest.raises(NotLoadable, match="'it' is no whole archive"):
        unpack(made.getvalue())


@pytest.mark.parametrize(
    "content",
    [b"no", tar_of(FILES)[:70], zip_of(EXPECTED)[:60], tar_of(FILES, False)[:2000]],
    ids=["text", "tar.gz", "zip", "tar"],  # what a zip says has the time in it: another each time
)
def test_what_is_no_whole_archive_is_said(unpack, content):
    with pytest.raises(NotLoadable, match="'it' is no whole archive, expected tar"):
        unpack(content)


@pytest.mark.parametrize(("magic", "kind"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz")])
def test_other_compressions_are_named(unpack, magic, kind):
    with pytest.raises(NotLoadable, match=f"'it' is compressed with {kind}, expected"):
        unpack(magic + b"...")


def test_of_layers_the_models_come_out(unpack, tree):
    first = tar_of({"etc/passwd": b"x", "models": None, "models/a": b"1", "models/b/c": b"2"})
    second = tar_of({"./models/a": b"3", "modelsx/a": b"4"}, links=[("bin", "usr/bin")])
    assert tree(unpack(first, second, is_layer=True)) == {"a": b"3", "b/c": b"2"}


def test_layers_take_away_what_earlier_ones_have(unpack, tree):
    first = tar_of({"models/a": b"1", "models/b/c": b"2", "models/d/e": b"3", "models/f": b"4"})
    second = tar_of({"models/.wh.a": b"", "models/.wh.b": b"", "models/d/.wh..wh..opq": b""})
    third = tar_of({"models/d/g": b"5", "models/.wh.nothing": b""})
    assert tree(unpack(first, second, third, is_layer=True)) == {"f": b"4", "d/g": b"5"}


@pytest.mark.parametrize("gone", [".wh.models", ".wh..wh..opq"])
def test_a_layer_may_take_all_away(unpack, tree, gone):
    first = tar_of({"models/a": b"1", "models/b/c": b"2"})
    assert tree(unpack(first, tar_of({gone: b"", "models/d": b"3"}), is_layer=True)) == {"d": b"3"}


def test_a_layer_takes_nothing_away_that_it_brings_itself(unpack, tree):
    first = tar_of({"models/a/b": b"1", "models/a/c": b"2", "models/d": b"3"})
    own = {"models/a/b": b"4", "models/a/.wh..wh..opq": b"", "models/d": b"5", "models/.wh.d": b""}
    assert tree(unpack(first, tar_of(own), is_layer=True)) == {"a/b": b"4", "d": b"5"}


def test_a_tar_archive_that_ends_with_a_zip_archive_is_a_tar_archive(unpack, tree):
    files = {"env.zip": zip_of({"x": b"1"})}
    assert tree(unpack(tar_of(files, False))) == files


def test_in_a_later_layer_a_file_may_become_a_folder_and_the_reverse(unpack, tree):
    first = tar_of({"models/a": b"1", "models/b/c": b"2", "models/b/d/e": b"3"})
    second = tar_of({"models/a": None, "models/a/x": b"4", "models/b": b"5"})
    assert tree(unpack(first, second, is_layer=True)) == {"a/x": b"4", "b": b"5"}


@pytest.mark.parametrize("files", [{"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}])
def test_what_is_a_file_and_a_folder_is_refused(unpack, files):
    with pytest.raises(NotLoadable, match=r"'it' holds 'a.*' as a file and as a folder"):
        unpack(tar_of(files))


@pytest.mark.parametrize("path", ["models/../x", "models/../../.wh.x", "models/.wh..."])
def test_layers_reach_nothing_outside_of_the_folder(unpack, tree, tmp_path, path):
    (tmp_path / "x").write_text("stays")
    with pytest.raises(NotLoadable, match="which leads out of it"):
        unpack(tar_of({path: b"bad"}), is_layer=True)
    assert (tmp_path / "x").read_text() == "stays"


def test_a_link_among_a_layers_models_is_refused(unpack):
    with pytest.raises(NotLoadable, match="'it' holds 'models/a', which is a link"):
        unpack(tar_of({}, links=[("models/a", "/etc")]), is_layer=True)
