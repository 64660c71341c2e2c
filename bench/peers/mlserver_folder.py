"""Writes an MLServer folder for the models of a bench repository.

python bench/peers/mlserver_folder.py REPOSITORY FOLDER
"""

import json
import sys
from pathlib import Path

IMPLEMENTATIONS = {"simple": "OnnxModel", "identity_fp32": "IdentityModel"}


def write_folder(repository: Path, folder: Path) -> None:
    """Write a model-settings.json for each model that MLServer is measured with."""
    for name, implementation in IMPLEMENTATIONS.items():
        settings = {"name": name, "implementation": f"mlserver_models.{implementation}"}
        file = repository / name / "1" / "model.onnx"
        if file.exists():
            settings["parameters"] = {"uri": str(file.resolve())}
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "model-settings.json").write_text(json.dumps(settings, indent=2))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: mlserver_folder.py REPOSITORY FOLDER")
    write_folder(Path(sys.argv[1]), Path(sys.argv[2]))
