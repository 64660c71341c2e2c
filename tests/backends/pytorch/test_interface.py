"""What a torch.export program says of itself; PyTorch itself is not needed."""

import json
import zipfile

import pytest

from inferd.backends.pytorch.backend import PytorchBackend
from inferd.backends.pytorch.interface import read_interface
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles
from inferd.core.signature import Declared
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

MANY = {"as_expr": {"expr_str": "Symbol('s40', positive=True, integer=True)"}}


def tensor(dtype, *sizes):
    return {"dtype": dtype, "sizes": [{"as_int": s} if isinstance(s, int) else s for s in sizes]}


def user(kind, name):
    return {f"user_{kind}": {"arg": {"as_tensor": {"name": name}}}}


def spec(kind, context, count):
    leaf = {"type": None, "context": None, "children_spec": []}
    whole = {"type": f"builtins.{kind}", "context": context, "children_spec": [leaf] * count}
    return json.dumps([1, whole])


PROGRAM = {
    "graph_module": {
        "graph": {
            "nodes": [],
            "tensor_values": {
                "p_weight": tensor(7, 3, 4),
                "image": tensor(7, MANY, 8),
                "argmax": tensor(5, MANY, 1),
                "softmax": tensor(13, MANY, 10),
            },
        },
        "signature": {
            "input_specs": [{"parameter": {"arg": {"name": "p_weight"}}}, user("input", "image")],
            "output_specs": [user("output", "argmax"), user("output", "softmax")],
        },
        "module_call_graph": [
            {"fqn": "", "signature": {"out_spec": spec("dict", '["digit", "share"]', 2)}}
        ],
    }
}


@pytest.fixture
def save(tmp_path):
    """save(change) writes PROGRAM as a .pt2 file, after `change` has had it."""

    def write(change=lambda graph: None):
        program = json.loads(json.dumps(PROGRAM))
        change(program["graph_module"])
        file = tmp_path / "1" / "model.pt2"
        file.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("m/models/model.json", json.dumps(program))
        return ModelFiles(tmp_path, 1, file.parent, file)

    return write


def as_tuple(graph):
    graph["module_call_graph"][0]["signature"]["out_spec"] = spec("tuple", "null", 2)


def test_names_types_and_dims_are_read(save):
    found = read_interface(save().file, "model 'm'")
    assert found.inputs == {"image": Declared("image", "float32", (-1, 8), DataType.FP32)}
    assert found.outputs == {
        "digit": Declared("digit", "int64", (-1, 1), DataType.INT64),
        "share": Declared("share", "bfloat16", (-1, 10), DataType.BF16),
    }


def test_outputs_that_have_no_names_are_called_as_their_operations(save):
    assert list(read_interface(save(as_tuple).file, "model 'm'").outputs) == ["argmax", "softmax"]


def test_a_configuration_is_completed_without_pytorch(save):
    completed = PytorchBackend().complete_alone(save(), ModelConfig("m"))
    assert completed.max_batch_size == 4
    assert completed.input == (ModelInput("image", DataType.FP32, (8,)),)
    assert completed.output == (
        ModelOutput("digit", DataType.INT64, (1,)),
        ModelOutput("share", DataType.BF16, (10,)),
    )


def test_everything_that_does_not_fit_is_reported_without_pytorch(save):
    config = ModelConfig(
        "m",
        max_batch_size=2,
        input=(ModelInput("image", DataType.FP16, (9,)),),
        output=(
            ModelOutput("digit", DataType.INT64, (1,)),
            ModelOutput("share", DataType.BF16, ()),
        ),
    )
    report = PytorchBackend().read_offline(save(), config)
    assert report.is_complete
    assert [one.path for one in report.complaints] == [
        ("input", 0, "data_type"),
        ("input", 0, "dims"),
        ("output", 1, "dims"),
    ]


def test_of_torchscript_only_pytorch_tells_anything(save):
    file = save().file.with_suffix(".pt")
    file.write_bytes(b"")
    files = ModelFiles(file.parent.parent, 1, file.parent, file)
    assert not PytorchBackend().read_offline(files, ModelConfig("m")).is_complete


def test_a_configuration_that_says_something_else_is_refused(save):
    config = ModelConfig("m", input=(ModelInput("image", DataType.FP32, (9,)),), max_batch_size=2)
    with pytest.raises(InvalidConfig, match="'image'"):
        PytorchBackend().complete_alone(save(), config)


def odd_type(graph):
    graph["graph"]["tensor_values"]["image"]["dtype"] = 99


def no_tensor(graph):
    graph["signature"]["input_specs"][1] = {"user_input": {"arg": {"as_int": 3}}}


def twice(graph):
    graph["signature"]["output_specs"][1] = user("output", "argmax")


def unknown_tensor(graph):
    del graph["graph"]["tensor_values"]["softmax"]


def no_spec(graph):
    graph["module_call_graph"] = []


def odd_spec(graph):
    graph["module_call_graph"][0]["signature"]["out_spec"] = "[2]"


def no_signature(graph):
    graph["signature"] = None


def a_constant(graph):
    graph["signature"]["input_specs"].append({"constant_input": {"name": "n"}})


def written_to(graph):
    graph["signature"]["output_specs"].append({"user_input_mutation": {"arg": {"name": "x"}}})


@pytest.mark.parametrize(
    "change",
    [
        a_constant,
        written_to,
        odd_type,
        no_tensor,
        twice,
        unknown_tensor,
        no_spec,
        odd_spec,
        no_signature,
    ],
)
def test_what_is_not_as_known_is_left_to_pytorch(save, change):
    files = save(change)
    assert read_interface(files.file, "model 'm'") is None
    assert PytorchBackend().complete_alone(files, ModelConfig("m")) is None


def test_a_file_that_would_not_be_loaded_is_refused(save):
    def evil(graph):
        graph["graph"]["nodes"] = [{"name": "x; import os"}]

    with pytest.raises(InvalidConfig, match="name that is not known"):
        PytorchBackend().complete_alone(save(evil), ModelConfig("m"))


def test_what_is_no_torch_export_is_left_to_pytorch(tmp_path):
    file = tmp_path / "1" / "model.pt"
    files = ModelFiles(tmp_path, 1, file.parent, file)
    assert PytorchBackend().complete_alone(files, ModelConfig("m")) is None
