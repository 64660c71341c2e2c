import io
import os
import tarfile
from pathlib import Path

import pytest

from inferd.backends.worker.environments import archive as archives
from inferd.backends.worker.environments.archive import CHECK, Limits, inside
from inferd.errors import InvalidConfig


@pytest.fixture
def archive(tmp_path):
    """archive(member, ...) writes a tar.gz; a member is a name, or (name, what is different)."""

    def build(*members, compression="gz"):
        path = tmp_path / f"env.tar.{compression}"
        with tarfile.open(path, f"w:{compression}") as target:
            for member in members:
                name, more = member if isinstance(member, tuple) else (member, {})
                more = dict(more)
                info = tarfile.TarInfo(name)
                content = more.pop("content", b"x")
                info.size = len(content)
                for attribute, value in more.items():
                    setattr(info, attribute, value)
                target.addfile(info, io.BytesIO(content))
        return path

    return build


@pytest.fixture(params=sorted({CHECK, inside}, key=lambda check: check.__module__))
def unpack(request):
    """Unpacks, with the filter that this Python has, and the one for those that have none."""

    def unpack(archive, target, limits, place):
        archives.unpack(archive, target, limits, place, request.param)

    return unpack


@pytest.fixture
def target(tmp_path):
    return tmp_path / "unpacked"


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_files_come_out_as_they_were(unpack, archive, target, compression):
    path = archive("a/b", ("a/run", {"mode": 0o755}), compression=compression)
    unpack(path, target, Limits(), "here")
    assert (target / "a/b").read_text() == "x"
    assert (target / "a/run").stat().st_mode & 0o111


def test_links_inside_are_links(unpack, archive, target):
    link = ("lib64", {"type": tarfile.SYMTYPE, "linkname": "lib", "content": b""})
    unpack(archive("lib/a", link), target, Limits(), "here")
    assert (target / "lib64/a").read_text() == "x"


@pytest.mark.parametrize("name", ["bin/python", "./bin/python3.11", "env-1.0/bin/python3"])
def test_only_an_interpreter_may_be_a_link_to_anywhere(unpack, archive, target, name):
    link = (name, {"type": tarfile.SYMTYPE, "linkname": "/usr/bin/env", "content": b""})
    unpack(archive(link), target, Limits(), "here")
    assert (target / name).is_symlink()


def test_an_interpreter_has_other_names(unpack, archive, target):
    own = ("bin/python", {"type": tarfile.SYMTYPE, "linkname": "/usr/bin/env", "content": b""})
    other = ("bin/python3", {"type": tarfile.SYMTYPE, "linkname": "python", "content": b""})
    unpack(archive(own, other), target, Limits(), "here")
    assert (target / "bin/python3").readlink() == Path("python")


LINK = {"type": tarfile.SYMTYPE, "content": b""}


@pytest.mark.parametrize(
    "members",
    [
        ["../out"],
        ["a/../../out"],
        [("link", {**LINK, "linkname": "/etc"})],
        [("link", {**LINK, "linkname": "../.."})],
        [("bin/python", {**LINK, "linkname": "../../out"})],
        [("../bin/python", {**LINK, "linkname": "/usr/bin/env"})],
        [("./../bin/python3", {**LINK, "linkname": "/usr/bin/env"})],
        [("bin/python", {**LINK, "linkname": "/etc"}), "bin/python/out"],
        [("bin/python", {**LINK, "linkname": "/nowhere/out"}), "bin/python"],
        [
            ("bin/python", {**LINK, "linkname": "/etc/hosts"}),
            ("hard", {"type": tarfile.LNKTYPE, "linkname": "bin/python", "content": b""}),
        ],
        [("hard", {"type": tarfile.LNKTYPE, "linkname": "../../out", "content": b""})],
        [("pipe", {"type": tarfile.FIFOTYPE, "content": b""})],
        [("disk", {"type": tarfile.BLKTYPE, "content": b""})],
        [
            ("a/b/c", {}),
            ("up", {**LINK, "linkname": "a/b"}),
            ("out", {**LINK, "linkname": "up/../../../x"}),
        ],
    ],
)
def test_nothing_comes_out_elsewhere(unpack, archive, target, tmp_path, members):
    path = archive(*members)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        InvalidConfig, match=r"^here cannot be unpacked: '.*' would lie, or leads, out"
    ):
        unpack(path, target, Limits(), "here")
    assert sorted(tmp_path.iterdir()) == sorted([*before, target])


def test_an_absolute_name_is_taken_as_one_inside(unpack, archive, target):
    unpack(archive("/a"), target, Limits(), "here")
    assert (target / "a").read_text() == "x"


@pytest.mark.parametrize("limits", [Limits(max_bytes=1), Limits(max_files=1)])
def test_too_much_is_refused_before_it_is_written(unpack, archive, target, limits):
    with pytest.raises(InvalidConfig, match=r"here holds more than .* bytes or .* files"):
        unpack(archive("a", "b"), target, limits, "here")
    assert not (target / "b").exists()


def test_a_small_archive_of_a_huge_file_is_refused(unpack, archive, target):
    path = archive(("a", {"content": bytes(1 << 20)}))
    assert path.stat().st_size < 1 << 12
    with pytest.raises(InvalidConfig, match="here holds more than 1000 bytes"):
        unpack(path, target, Limits(max_bytes=1000), "here")
    assert list(target.iterdir()) == []


def test_it_may_not_take_for_ever(unpack, archive, target):
    with pytest.raises(InvalidConfig, match="here was not unpacked within 0 s"):
        unpack(archive("a"), target, Limits(timeout_s=0.0), "here")


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08" + bytes(100)])
def test_what_is_no_archive_is_told(unpack, tmp_path, target, content):
    path = tmp_path / "env.tar.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"^here cannot be unpacked: it is damaged, or no tar"):
        unpack(path, target, Limits(), "here")


@pytest.mark.parametrize("name", ["a\0b/c", "lib/\0"])
def test_a_name_that_no_file_can_have_is_told(unpack, tmp_path, target, name):
    path = tmp_path / "env.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:  # the others end names there
        member = tarfile.TarInfo("short")
        member.pax_headers = {"path": name}
        packed.addfile(member)
    with pytest.raises(InvalidConfig, match=r"^here cannot be unpacked: it is damaged"):
        unpack(path, target, Limits(), "here")


@pytest.mark.parametrize("other", ["lib/none", "lib/a"])
def test_a_link_to_a_member_that_is_not_there_is_told(unpack, archive, target, other):
    link = ("lib/a", {"type": tarfile.LNKTYPE, "linkname": other, "content": b""})
    with pytest.raises(InvalidConfig, match=r"^here cannot be unpacked: "):
        unpack(archive(link), target, Limits(), "here")


def test_an_archive_that_was_cut_is_told(unpack, archive, target):
    path = archive(("a", {"content": bytes(range(256)) * 4000}))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InvalidConfig, match="here cannot be unpacked"):
        unpack(path, target, Limits(), "here")


def test_what_is_unpacked_is_its_owner_s_and_sets_nobody_s_rights(unpack, archive, target):
    members = [("run", {"mode": 0o6777}), ("a", {"mode": 0o6666, "uid": 12345, "uname": "root"})]
    unpack(archive(*members), target, Limits(), "here")
    run, a = (target / "run").stat(), (target / "a").stat()
    assert (run.st_mode & 0o7777, a.st_mode & 0o7777) == (0o755, 0o644)
    assert a.st_uid == os.getuid()


def test_links_that_lead_to_each_other_are_told(unpack, archive, target):
    links = [("round", {**LINK, "linkname": "here"}), ("here", {**LINK, "linkname": "round"})]
    with pytest.raises(InvalidConfig, match=r"^here cannot be unpacked: "):
        unpack(archive(*links, "round/a"), target, Limits(), "here")
