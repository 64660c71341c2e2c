"""Model files in no version folder: which library each is for, and which one is the model."""

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.bare import bare_file, is_python_model, platform_of

XGBOOST = b'{"learner":{"attributes":{},"gradient_booster":{}},"version":[2,0,3]}'
PYTHON = b"class TritonPythonModel:\n    pass\n"

KNOWN = {  # name -> content, the usual name of such a file
    "a.onnx": (b"", "model.onnx"),
    "a.pt": (b"", "model.pt"),
    "a.xml": (b"", "model.xml"),
    "a.tflite": (b"", "model.tflite"),
    "a.skops": (b"", "model.skops"),
    "a.joblib": (b"", "model.joblib"),
    "a.pkl": (b"", "model.joblib"),
    "a.pickle": (b"", "model.joblib"),
    "a.json": (XGBOOST, "xgboost.json"),
    "b.json": (b"\n " + XGBOOST, "xgboost.json"),
    "a.ubj": (b"", "model.ubj"),
    "a.bst": (b"{L\0\0", "model.ubj"),
    "b.bst": (XGBOOST, "xgboost.json"),
    "c.bst": (b"tree\nversion=v4\n", "lightgbm.txt"),
    "d.bst": (b"CBM1\0", "model.cbm"),
    "a.txt": (b"tree\nversion=v4\n", "lightgbm.txt"),
    "b.txt": (b"tree\r\nversion=v4\r\n", "lightgbm.txt"),
    "a.cbm": (b"", "model.cbm"),
    "a.py": (PYTHON, "model.py"),
}

UNKNOWN = {
    "config.json": b'{"hidden_size": 768}',
    "empty.json": b"",
    "notes.txt": b"trees are nice",
    "x.bst": b"binf\0",
    "x.h5": b"",
    "model": b"",
    "requirements.txt": b"onnx\n",
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_library_is_known_by_the_ending_or_by_how_the_file_begins(tmp_path, name):
    content, usual = KNOWN[name]
    (tmp_path / name).write_bytes(content)
    assert platform_of(tmp_path / name).filename == usual
    path, found = bare_file(tmp_path)
    assert (path, found.filename) == (tmp_path / name, usual)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_files_are_no_models(tmp_path, name):
    (tmp_path / name).write_bytes(UNKNOWN[name])
    assert platform_of(tmp_path / name) is None
    assert bare_file(tmp_path) is None


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_folder_may_be_the_model_itself(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "variables").mkdir()
    path, platform = bare_file(tmp_path)
    assert (path, platform.filename) == (tmp_path, "model.savedmodel")


def test_a_saved_model_may_lie_in_the_folder(tmp_path):
    (tmp_path / "net.savedmodel").mkdir()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    assert bare_file(tmp_path)[0].name == "net.savedmodel"


def test_links_are_followed_and_hidden_files_left_out(tmp_path):
    """As Kubernetes mounts what it keeps itself."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "net.onnx").touch()
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "net.onnx").symlink_to("..data/net.onnx")
    (tmp_path / ".other.onnx").touch()
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    assert bare_file(tmp_path)[0].name == "net.onnx"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["model.onnx", "other.onnx"], "model.onnx"),
        (["model.netdef", "init_model.netdef"], "model.netdef"),
        (["model.py", "model.pt", "tokenizer.pkl"], "model.py"),
        (["net.onnx", "handler.py"], "net.onnx"),
        (["model.joblib", "scaler.joblib"], "model.joblib"),
    ],
)
def test_of_several_files_one_is_the_model(tmp_path, names, chosen):
    for name in names:
        (tmp_path / name).write_bytes(PYTHON if name == "model.py" else b"")
    assert bare_file(tmp_path)[0].name == chosen


@pytest.mark.parametrize("names", [["a.onnx", "b.onnx"], ["model.onnx", "model.pt"]])
def test_where_nothing_tells_which_it_is_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    quoted = ", ".join(f"'{name}'" for name in names)
    with pytest.raises(InvalidConfig, match=f"holds 2 model files: {quoted}; name the one to"):
        bare_file(tmp_path)
    assert bare_file(tmp_path, "tensorflow") is None


def test_a_backend_chooses_among_the_files(tmp_path):
    for name in ("model.onnx", "model.pt", "saved_model.pb"):
        (tmp_path / name).touch()
    assert bare_file(tmp_path, "pytorch")[0].name == "model.pt"
    assert bare_file(tmp_path, "tensorflow")[0] == tmp_path


def test_a_python_file_is_a_model_by_its_class(tmp_path):
    (tmp_path / "a.py").write_bytes(PYTHON)
    (tmp_path / "b.py").write_text("import inferd\n")
    assert [is_python_model(tmp_path / name) for name in ("a.py", "b.py")] == [True, False]
