"""Models that ask for environments, and where these are kept."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scene import Scene

from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles


@pytest.fixture
def model(tmp_path):
    """model(file=text, parameter=value) is a model's folder: its files and configuration."""

    def build(files=(), **parameters):
        folder = tmp_path / "models" / "m"
        (folder / "1").mkdir(parents=True, exist_ok=True)
        for name, text in dict(files).items():
            (folder / name).write_text(text)
        found = ModelFiles(folder, 1, folder / "1", folder / "1" / "model.py")
        return found, ModelConfig("m", backend="python", parameters=parameters)

    return build


@pytest.fixture
def cache(tmp_path) -> Path:
    """Where environments are kept; it is not there yet."""
    return tmp_path / "cache" / "environments"


@pytest.fixture
def scene():
    made = []

    def make(*args, **more):
        made.append(Scene(*args, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
