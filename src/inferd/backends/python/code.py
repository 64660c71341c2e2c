"""Where the code of a Python model lies, which may be apart from the model."""

from pathlib import Path

from inferd.core.interfaces import ModelFiles


def code_folders(files: ModelFiles) -> tuple[Path, Path]:
    """Return the folder with the model's code, and the one around it, from which texts name files.

    That is the folder of the version in the model's; that of a Python-based backend is among others
    of its kind.
    """
    if files.file.is_relative_to(files.folder):
        return files.version_folder, files.folder
    return files.file.parent, files.file.parent.parent
