"""Where the code of a Python model lies, which may be outside the model's folder."""

from pathlib import Path

from inferd.core.interfaces import ModelFiles


def code_folders(files: ModelFiles) -> tuple[Path, Path]:
    """Return the folder with the model's code, and its parent, relative to which texts name files.

    These are the version's folder and the model's; for a Python-based backend, the backend's
    folder and the one that holds all backends.
    """
    if files.file.is_relative_to(files.folder):
        return files.version_folder, files.folder
    return files.file.parent, files.file.parent.parent
