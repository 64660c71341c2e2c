"""Environments small enough for tests: wheels of a few lines, and folders that look like venvs."""

import base64
import hashlib
import sys
import zipfile

import pytest


@pytest.fixture
def wheel(tmp_path):
    """wheel(name, version, code) writes a wheel into the folder it returns."""
    folder = tmp_path / "wheels"
    folder.mkdir()

    def build(name, version="1.0", code="", requires=()):
        about = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
        files = {
            f"{name}/__init__.py": code,
            f"{about}/METADATA": metadata,
            f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},{_mark(text)},{len(text)}\n" for path, text in files.items())
        files[f"{about}/RECORD"] = record + f"{about}/RECORD,,\n"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return folder

    return build


def _mark(text):
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture
def venv(tmp_path):
    """venv(name) is a folder that looks like an environment with what this Python has."""

    def build(name="env", where=tmp_path):
        folder = where / name
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return folder

    return build
