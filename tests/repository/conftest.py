"""Model folders in temporary repositories, and buckets that hold some."""

import pytest
from small_bucket import SmallBucket


@pytest.fixture
def make_bucket():
    """make_bucket(name, account="") starts a SmallBucket."""
    started = []

    def make(name="models", account=""):
        started.append(SmallBucket(name, account))
        return started[-1]

    yield make
    for bucket in started:
        bucket.shutdown()
        bucket.server_close()


@pytest.fixture
def add_model():
    """add_model(repository, name, config text) writes a model and returns its folder."""

    def write(repository, name, config=None, versions=(1,), file="model.onnx"):
        folder = repository / name
        folder.mkdir(parents=True)
        for version in versions:
            (folder / str(version)).mkdir()
            if file:
                (folder / str(version) / file).write_text("")
        if config is not None:
            (folder / "config.pbtxt").write_text(config)
        return folder

    return write
