"""Sites to fetch from, and a folder to fetch to."""

import os

import pytest
from small_hub import SmallHub

from inferd.repository.fetch.settings import FetchSettings
from inferd.repository.fetch.store import fetched
from inferd.repository.fetch.url import model_url


@pytest.fixture
def hub():
    site = SmallHub()
    yield site
    site.close()


@pytest.fixture
def other_hub():
    site = SmallHub()
    yield site
    site.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path, hub):
    """Nothing of whoever runs the tests; the hub of Hugging Face is the small one."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("INFERD_FETCH_DIRECTORY", str(tmp_path / "stored"))
    for name in ("HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "NETRC", "INFERD_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fetch(tmp_path):
    """fetch(text, setting=...) fetches what the URL leads to, and returns the folder."""

    def run(text, **settings):
        usual = FetchSettings(tmp_path / "stored")
        return fetched(model_url(text), usual._replace(**settings), os.environ)

    return run


@pytest.fixture
def tree():
    """tree(folder) is its files, path to content."""

    def read(folder):
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    return read
