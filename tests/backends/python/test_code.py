from pathlib import Path

from inferd.backends.python.code import code_folders
from inferd.core.interfaces import ModelFiles


def test_a_model_s_own_code_lies_in_its_version():
    folder = Path("/models/m")
    files = ModelFiles(folder, 3, folder / "3", folder / "3" / "model.py")
    assert code_folders(files) == (folder / "3", folder)


def test_the_code_of_a_python_based_backend_lies_with_the_backends():
    folder = Path("/models/m")
    files = ModelFiles(folder, 3, folder / "3", Path("/backends/b/model.py"))
    assert code_folders(files) == (Path("/backends/b"), Path("/backends"))
