"""Model folders in temporary repositories."""

import pytest


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
