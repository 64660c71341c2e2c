"""Which models are found at the paths, and what is said of the paths themselves."""

import json
import subprocess
import sys

from good import BASES, MODEL_PY

from inferd.check.places import check_paths
from inferd.repository.local import Reading

SOUND = 'backend: "identity"'


def test_the_models_of_all_paths_are_checked_and_sorted(repository):
    folder = repository(
        {
            "a/b/config.pbtxt": "backendd: 1",
            "a/a/config.pbtxt": SOUND,
            "a/a/1/x": "",
            "c/config.pbtxt": "name: 1\nbackendd: 1",
        }
    )
    checked = check_paths([folder / "c", folder / "a"], Reading())
    assert checked.model_count == 3
    assert [(one.file.parent.name, one.line) for one in checked.findings] == [
        ("b", 1),
        ("c", 1),
        ("c", 2),
    ]


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    [one] = check_paths([tmp_path / "no"], Reading()).findings
    assert (one.level, one.file) == ("error", tmp_path / "no")
    assert "does not exist" in one.text


def test_a_folder_without_models_is_an_error(tmp_path):
    checked = check_paths([tmp_path], Reading())
    assert [one.level for one in checked.findings] == ["error"]
    assert "there is no model here" in checked.findings[0].text


def test_what_the_server_would_warn_of_is_a_warning(repository):
    folder = repository({"a/config.pbtxt": SOUND, "a/1/x": "", "left.onnx": "x"})
    [one] = check_paths([folder], Reading()).findings
    assert (one.level, one.file) == ("warning", folder)
    assert "the file 'left.onnx' in it is not served" in one.text


def test_nothing_is_logged(repository, caplog):
    folder = repository({"a/config.pbtxt": SOUND, "a/1/x": "", "left.onnx": "x"})
    check_paths([folder], Reading())
    assert caplog.records == []


def test_a_python_file_that_defines_models_is_read_and_not_run(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("raise SystemExit(3)")
    [one] = check_paths([app], Reading()).findings
    assert (one.level, one.file) == ("note", app)
    app.write_text("def f(:")
    [one] = check_paths([app], Reading()).findings
    assert (one.level, one.line) == ("error", 1)


def test_a_name_that_is_at_two_paths_is_an_error(repository):
    folder = repository({"a/m/config.pbtxt": SOUND, "b/m/config.pbtxt": SOUND, "a/m/1/x": ""})
    repository({"b/m/1/x": ""})
    [one] = check_paths([folder / "a", folder / "b"], Reading()).findings
    assert "appears in two or more repositories" in one.text


FRAMEWORKS = {"onnxruntime", "torch", "tensorflow", "openvino", "sklearn", "xgboost", "lightgbm"}


def test_no_framework_is_loaded(repository):
    """Neither one that runs a model nor the code of a model.py."""
    files = {name: text for base in BASES.values() for name, text in base.items()}
    files |= {"k/1/model.py": MODEL_PY + "\nraise SystemExit(9)\n", "x/1/model.ubj": "x"}
    files |= {"w/1/model.pt": "x", "z/1/model.skops": "x", "v/1/model.tflite": "x"}
    folder = repository(files)
    code = f"""
import sys
from inferd.cli.main import main
code = main(["check", {str(folder)!r}, "--json"])
print(*sorted({FRAMEWORKS!r} & sys.modules.keys()), file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "\n"
    assert json.loads(done.stdout)["models"] == len(BASES) + 5
