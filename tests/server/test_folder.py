"""Where servers have their files."""

import os

import pytest

from inferd.config.server import ServerConfig
from inferd.server import folder
from inferd.server.folder import folders_of_servers, name_of, private_folder


def test_the_folder_is_for_its_user_alone(tmp_path):
    found = private_folder({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert found == tmp_path / "inferd"
    assert found.stat().st_mode & 0o777 == 0o700
    found.chmod(0o770)
    with pytest.raises(OSError, match="can be written by others"):
        private_folder({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "inferd").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="can be written by others"):
        private_folder({"XDG_RUNTIME_DIR": str(tmp_path)})


@pytest.mark.parametrize("user", [0, 1000])
def test_only_the_superuser_looks_at_the_folders_of_others(tmp_path, monkeypatch, user):
    own = tmp_path / "own"
    monkeypatch.setattr(folder, "private_folder", lambda _environ: own)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    others = [] if user else [tmp_path / "inferd"]
    assert folders_of_servers({"XDG_RUNTIME_DIR": str(tmp_path)}) == [own, *others]
    assert folders_of_servers({}) == [own]


def test_servers_with_other_ports_have_other_names():
    names = [name_of(ServerConfig(http_port=port, id=id)) for port in (1, 2) for id in ("a", "b")]
    assert len(set(names)) == 4
    assert names[0] == name_of(ServerConfig(http_port=1, id="a"))
