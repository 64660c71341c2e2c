"""Archives as PyTorch writes them, and as nobody should; PyTorch itself is not needed."""

import json
import pickle
import zipfile

import pytest

from inferd.backends.pytorch.archive import (
    check_export,
    check_script,
    has_native_code,
    sample_inputs,
)
from inferd.errors import InvalidConfig

EMPTY = pickle.dumps({}, protocol=2)
SCRIPT = {"constants.pkl": EMPTY, "data.pkl": EMPTY, "code/__torch__.py": b"class M(Module): ..."}
NODE = {
    "target": "torch.ops.aten.add.Tensor",
    "name": "add",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}],
    "metadata": {"stack_trace": "anything; at all"},
}
SIZES = [{"as_expr": {"expr_str": "Symbol('s17', positive=True, integer=True)"}}, {"as_int": 3}]


def graph(**changes):
    node = NODE | changes
    return {"graph_module": {"graph": {"nodes": [node], "tensor_values": {"x": {"sizes": SIZES}}}}}


def archive(folder, members, prefix="m/", compress=zipfile.ZIP_STORED):
    file = folder / "model.pt"
    with zipfile.ZipFile(file, "w", compress) as written:
        for name, content in members.items():
            content = json.dumps(content) if isinstance(content, dict) else content
            written.writestr(prefix + name, content)
    return file


def refusal(check, file):
    with pytest.raises(InvalidConfig) as caught:
        check(file, "model 'm'")
    assert caught.value.message.startswith("model 'm': ")
    return caught.value.message


def test_a_script_that_computes_is_fine(tmp_path):
    check_script(archive(tmp_path, SCRIPT), "model 'm'")


def test_the_example_inputs_of_a_traced_script_have_no_elements(tmp_path):
    storage = b"\x80\x02(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06tQ."  # six of them
    check_script(archive(tmp_path, SCRIPT | {"traced_inputs.pkl": storage}), "model 'm'")
    file = archive(tmp_path, SCRIPT | {"data.pkl": storage})
    assert "claims 6 elements" in refusal(check_script, file)


def test_a_program_with_plain_names_is_fine(tmp_path):
    file = archive(tmp_path, {"models/model.json": graph(), "data/sample_inputs/model.pt": b"7"})
    check_export(file, "model 'm'")
    assert sample_inputs(file, "model 'm'") == b"7"
    assert not has_native_code(file, "model 'm'")


def test_compiled_code_is_seen(tmp_path):
    file = archive(tmp_path, {"data/aotinductor/model/a.so": b"\x7fELF"})
    assert has_native_code(file, "model 'm'")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02}q\0.", b"\x7fELF" * 100])
@pytest.mark.parametrize("check", [check_script, check_export, has_native_code])
def test_other_files_are_refused(tmp_path, check, content):
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    assert "not a zip archive" in refusal(check, file)


def test_an_archive_behind_something_else_is_refused(tmp_path):
    file = archive(tmp_path, SCRIPT)
    file.write_bytes(b"#" * 50 + file.read_bytes())
    assert "not a whole one" in refusal(check_script, file)


def test_what_torch_save_writes_is_refused(tmp_path):
    file = archive(tmp_path, {"data.pkl": EMPTY, "data/0": b"1234"})
    assert "can run any code, and are not loaded" in refusal(check_script, file)


@pytest.mark.parametrize(
    ("check", "members", "text"),
    [
        (check_script, {"models/model.json": graph()}, "call it model.pt2"),
        (check_script, SCRIPT | {"model.json": b"{}"}, "the format of PyTorch before 1.4"),
        (check_export, SCRIPT, "call it model.pt"),
        (check_export, {"a": b""}, "write it with torch.export.save"),
        (check_export, {"models/model.json": b"{"}, "'models/model.json' is not JSON"),
        (check_export, {"models/model.json": b"[" * 99_999}, "'models/model.json' is not JSON"),
        (check_export, {"models/model.json": b"[" * 500 + b"]" * 500}, "nested too deeply"),
    ],
)
def test_archives_of_another_kind_are_refused(tmp_path, check, members, text):
    assert text in refusal(check, archive(tmp_path, members))


@pytest.mark.parametrize(
    "code",
    [
        'torch.save(x, "f")',
        "torch . from_file (p)",
        "ops.aten.save(x)",
        'ops.image.write_file("f", x)',
        "__torch__.torch.classes.dist_c10d.TCPStore",
    ],
)
def test_a_script_that_reaches_out_is_refused(tmp_path, code):
    members = SCRIPT | {"code/__torch__/inner.py": f"def forward(self, x):\n  {code}\n"}
    message = refusal(check_script, archive(tmp_path, members))
    assert "files" in message or "native code" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "torch.os.system"},
        {"target": "torch.ops.aten.from_file.default"},
        {"target": "torch.ops.aten.from_file"},
        {"target": "torch.ops.aten.save.default"},
        {"target": "torch.ops.image.write_file.default"},
        {"target": "torch.ops.load_library"},
        {"target": "torch.ops.aten.add.Tensor.__globals__"},
        {"target": "_operator.attrgetter"},
        {"target": "print"},
        {"name": "x=print(1)"},
        {"inputs": [{"arg": {"as_expr": {"expr_str": "exec(chr(49))"}}}]},
        {"inputs": [{"arg": {"as_expr": {"expr_str": "().__class__"}}}]},
        {"inputs": [{"arg": {"as_expr": {"expr_str": "Symbol('print(1)')"}}}]},
    ],
)
def test_a_program_whose_names_are_more_than_names_is_refused(tmp_path, changes):
    file = archive(tmp_path, {"models/model.json": graph(**changes)})
    assert "that is not known" in refusal(check_export, file)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"path_name": "weight_0", "use_pickle": True}, "weights"),
        ({"path_name": "opaque_obj_0", "use_pickle": False}, "constants"),
        ({"path_name": "custom_obj_0", "use_pickle": False}, "constants"),
        ([], "weights"),
    ],
)
def test_pickles_in_a_program_are_refused(tmp_path, entry, kind):
    members = {
        "models/model.json": graph(),
        f"data/{kind}/model_{kind}_config.json": {"config": {"w": entry}},
    }
    assert "is not a plain tensor" in refusal(check_export, archive(tmp_path, members))
    members = {"models/model.json": graph(), f"data/{kind}/model.pt": EMPTY}
    assert "is a pickle" in refusal(check_export, archive(tmp_path, members))


def spec(key, kind="builtins.dict"):
    """Return how a program says that its output is a dictionary of one tensor."""
    node = {"type": kind, "context": json.dumps([key]), "children_spec": []}
    return {"module_call_graph": [{"signature": {"out_spec": json.dumps([1, node])}}]}


def test_outputs_with_names_are_fine(tmp_path):
    members = {"models/model.json": graph() | spec("y") | {"in_spec": "no JSON"}}
    check_export(archive(tmp_path, members), "model 'm'")


@pytest.mark.parametrize(
    "written",
    [
        spec({"__enum__": True, "fqn": "os:environ", "name": "SECRET"}),
        spec("y", kind="collections.defaultdict"),
    ],
)
def test_outputs_whose_keys_are_looked_up_in_any_module_are_refused(tmp_path, written):
    file = archive(tmp_path, {"models/model.json": graph() | written})
    assert "keys of an enum, or are a defaultdict" in refusal(check_export, file)


@pytest.mark.parametrize("deep", ["[" * 99_999, "[" * 300 + "]" * 300])
def test_outputs_that_are_nested_too_deeply_are_refused(tmp_path, deep):
    file = archive(tmp_path, {"models/model.json": graph() | {"out_spec": deep}})
    assert "nested too deeply" in refusal(check_export, file)


def test_a_second_program_that_would_be_read_as_well_is_refused(tmp_path):
    members = {"models/model.json": graph(), "models/other.json": graph()}
    message = refusal(check_export, archive(tmp_path, members))
    assert "its member 'models/other.json' is another program" in message


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"config": [1]}'])
def test_a_list_of_weights_that_is_none_is_refused(tmp_path, content):
    name = "data/weights/model_weights_config.json"
    members = {"models/model.json": graph(), name: content}
    message = refusal(check_export, archive(tmp_path, members))
    assert message.endswith(f"its member '{name}' has no table 'config'")


@pytest.mark.slow
def test_sizes_that_the_file_does_not_hold_are_refused(tmp_path):
    bomb = SCRIPT | {"data/0": bytes(65 << 20)}
    file = archive(tmp_path, bomb, compress=zipfile.ZIP_DEFLATED)
    assert "claims 68157440 bytes" in refusal(check_script, file)


def test_members_must_be_one_of_each_in_one_folder(tmp_path):
    file = archive(tmp_path, SCRIPT)
    with zipfile.ZipFile(file, "a") as twice, pytest.warns(UserWarning, match="Duplicate name"):
        twice.writestr("m/data.pkl", EMPTY)
    assert "there twice" in refusal(check_script, file)
    file = archive(tmp_path, {**SCRIPT, "../../n": b""}, prefix="")
    assert "do not share one folder" in refusal(check_script, file)
