"""What goes wrong in sound files: values that do not fit together, and files that lie elsewhere."""

import pytest
from good import BASES, MODEL_PY, ONE, onnx_model
from mutations import offset_of
from onnx import TensorProto

from inferd.check.places import check_paths
from inferd.config.positions import Positions
from inferd.repository.local import Reading

GPUS = Reading(gpu_count=2)

EVERYTHING, SEQUENCE, OLDEST = "everything", "sequence", "oldest"
DYNAMIC, CONTROL = "dynamic_batching", ("sequence_batching", "control_input")
WARMUP = ("model_warmup", 0, "inputs", "INPUT1")
STEP = ("ensemble_scheduling", "step")

ACCELERATED = """
optimization { execution_accelerators { cpu_execution_accelerator { name: "warp" } } }
"""
THREADS = 'parameters { key: "intra_op_thread_count" value { string_value: "many" } }\n'

# base, what is replaced, by what, the path of the field that is blamed, words
VALUES = [
    (EVERYTHING, 'name: "m"', 'name: "n"', ("name",), "expected 'm'"),
    (EVERYTHING, '"identity"', '"no_such"', ("backend",), "there is no backend 'no_such'"),
    (EVERYTHING, '"identity"', '"dali"', ("backend",), "Triton's is a library in C++"),
    (EVERYTHING, "size: 8\n", "size: -1\n", ("max_batch_size",), "is -1, expected 0 or more"),
    (EVERYTHING, "[ 4, 8 ]", "[ 4, 9 ]", (DYNAMIC, "preferred_batch_size", 1), "9 is not between"),
    (EVERYTHING, "[ 4, 8 ]", "[ 0, 8 ]", (DYNAMIC, "preferred_batch_size", 0), "0 is not between"),
    (
        *(EVERYTHING, "delay_microseconds: 100", "delay_microseconds: 3600000001"),
        *((DYNAMIC, "max_queue_delay_microseconds"), "an hour"),
    ),
    (
        *(EVERYTHING, "default_priority_level: 1", "default_priority_level: 3"),
        *((DYNAMIC, "default_priority_level"), "expected 1 to 2"),
    ),
    (EVERYTHING, "key: 2\n", "key: 3\n", (DYNAMIC, "priority_queue_policy", 3), "has level 3"),
    (
        *(EVERYTHING, "preserve_ordering: false", "preserve_ordering: true"),
        *((DYNAMIC, "priority_levels"), "allows only one of the priority_levels"),
        (DYNAMIC, "priority_queue_policy", 2),
    ),
    (
        EVERYTHING,
        "dims: [ 5 ]",
        "dims: [ -1 ]",
        ("model_warmup", 0, "inputs", "INPUT1", "dims"),
        "",
    ),
    (
        *(EVERYTHING, "data_type: TYPE_INT32 dims: [ 5 ]", "data_type: TYPE_FP32 dims: [ 5 ]"),
        *(("model_warmup", 0, "inputs", "INPUT1", "data_type"), "the model's is INT32"),
    ),
    (
        EVERYTHING,
        "zero_data: true",
        "zero_data: false",
        ("model_warmup", 0, "inputs", "INPUT1"),
        "",
    ),
    (
        *(EVERYTHING, 'input_data_file: "one"', 'input_data_file: "two"'),
        *(("model_warmup", 1, "inputs", "INPUT1", "input_data_file"), "there is no such file"),
    ),
    (
        *(EVERYTHING, 'input_data_file: "one"', 'input_data_file: "../labels.txt"'),
        *(("model_warmup", 1, "inputs", "INPUT1", "input_data_file"), "out of"),
    ),
    (
        *(EVERYTHING, "dims: [ 1 ] input_data_file", "dims: [ 2 ] input_data_file"),
        *(("model_warmup", 1, "inputs", "INPUT1", "input_data_file"), "has 4 bytes"),
    ),
    (EVERYTHING, 'label_filename: "l', 'label_filename: "x', ("output", 0, "label_filename"), ""),
    (EVERYTHING, '"labels.txt"\n', '"/a"\n', ("output", 0, "label_filename"), "leads out"),
    (EVERYTHING, "count: 1\n", "count: 2000\n", ("instance_group", 0, "count"), "at most 1024"),
    (EVERYTHING, "[ 0, 1 ] }", "[ 0, 7 ] }", ("instance_group", 1, "gpus"), "has 0 to 1"),
    (EVERYTHING, "[ 0, 1 ] }", "[ 0, -1 ] }", ("instance_group", 1, "gpus", 1), "gpu -1"),
    (
        *(EVERYTHING, "kind: KIND_GPU gpus: [ 0, 1 ]", "kind: KIND_CPU gpus: [ 0, 1 ]"),
        *(("instance_group", 1, "gpus"), "has kind KIND_CPU but lists gpus"),
    ),
    (EVERYTHING, '"checksum"', '"decrypt"', ("model_repository_agents", "agents", 0, "name"), ""),
    (EVERYTHING, "SHA256:", "MD4:", ("model_repository_agents", "agents", 0, "parameters"), ""),
    (
        *(EVERYTHING, 'key: "SHA256:labels.txt"', 'key: "SHA256:labels"'),
        *(("model_repository_agents", "agents", 0, "parameters"), "there is no file 'labels'"),
    ),
    (
        *(EVERYTHING, "decoupled: false", "decoupled: true"),
        *(("response_cache",), "response_cache does not go with a decoupled"),
    ),
    (
        *(EVERYTHING, '"model.bin"', '"../model.bin"'),
        *(("default_model_filename",), "leads out of the version folder"),
    ),
    (EVERYTHING, '"model.bin"', '"other.bin"', ("default_model_filename",), "no 1/other.bin"),
    (
        *(EVERYTHING, '[ "operators.so" ]', '[ "a.so", "/b.so" ]'),
        *(("model_operations", "op_library_filename", 1), "leads out of the model's folder"),
    ),
    (EVERYTHING, '[ "COUNT" ]\n  data_type: TYPE_INT32', '[ "COUNT" ]', ("batch_input", 0), ""),
    (
        *(EVERYTHING, '  source_input: [ "INPUT1" ]\n}\nversion', "}\nversion"),
        *(("batch_output", 0), "has 0 of source_input, expected 1"),
    ),
    (
        *(EVERYTHING, 'INT32\n  source_input: [ "INPUT1" ]', 'INT32\n  source_input: [ "NO" ]'),
        *(("batch_input", 0, "source_input"), "source_input 'NO' is no input"),
    ),
    (EVERYTHING, '[ "OUTPUT1" ]', '[ "NO" ]', ("batch_output", 0, "target_name"), "is no output"),
    (EVERYTHING, 'key: "note"', 'key: "inferd_join"', ("parameters", "inferd_join"), "expected"),
    (EVERYTHING, 'key: "note"', 'key: "inferd_placement"', ("parameters", "inferd_placement"), ""),
    (EVERYTHING, 'key: "note"', 'key: "inferd_execution"', ("parameters", "inferd_execution"), ""),
    (EVERYTHING, 'key: "note"', 'key: "inferd_convert"', ("parameters", "inferd_convert"), "onnx"),
    (EVERYTHING, "[ 3, -1, 4 ] }", "[ 3, -1, 5 ] }", ("input", 0), "differ in size", ("output", 0)),
    (
        EVERYTHING,
        "dims: [ 3, -1, 4 ]",
        "dims: [ 3, -2, 4 ]",
        ("input", 0),
        "has dim -2",
        ("model_warmup", 1),
    ),
    (SEQUENCE, "[ 0, 1 ] }\n    },", "[ 0 ] }\n    },", (*CONTROL, 0), "has 1 entries"),
    (
        *(SEQUENCE, "fp32_false_true: [ 0, 1 ]", "fp32_false_true: [ 0, 1, 2 ]"),
        *((*CONTROL, 1, "control", 0, "fp32_false_true"), "has 3 entries, expected 2"),
    ),
    (SEQUENCE, "data_type: TYPE_UINT64", "data_type: TYPE_FP32", (*CONTROL, 3), "TYPE_FP32"),
    (SEQUENCE, "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY", (*CONTROL, 2), "have the kind"),
    (SEQUENCE, '"END"', '"READY"', (*CONTROL, 2), "'READY' has 2 kinds"),
    (SEQUENCE, '"START"', '""', (*CONTROL, 0), "a control_input has no name"),
    (SEQUENCE, "utilization: 0.5", "utilization: 1.5", ("sequence_batching", "direct"), "0 to 1"),
    (SEQUENCE, '"in2"', '"in"', ("sequence_batching", "state", 1, "input_name"), "names 2"),
    (SEQUENCE, '"out2"', '"out"', ("sequence_batching", "state", 1, "output_name"), "2 states"),
    (SEQUENCE, 'output_name: "out2"', "", ("sequence_batching", "state", 1), "output_name"),
    (SEQUENCE, '"file"', '""', ("sequence_batching", "state", 1), "has no name"),
    (
        *(SEQUENCE, "dims: [ 1 ] data_file", "dims: [ 2 ] data_file"),
        *(("sequence_batching", "state", 1, "initial_state", 0, "dims"), "has dims [2]"),
    ),
    (
        *(SEQUENCE, 'data_file: "one"', 'data_file: "two"'),
        *(("sequence_batching", "state", 1, "initial_state", 0, "data_file"), "no file 'two'"),
    ),
    (
        *(SEQUENCE, 'data_file: "one"', 'data_file: "../x"'),
        *(("sequence_batching", "state", 1, "initial_state", 0, "data_file"), "leads out"),
    ),
    (SEQUENCE, "zero_data: true", "zero_data: false", ("sequence_batching", "state", 0), "needs"),
    (SEQUENCE, '"START"', '"BEGIN"', ("sequence_batching",), "file needs input 'START'"),
    (
        *(SEQUENCE, 'input_name: "in"', 'input_name: "z"', ("sequence_batching",)),
        "file needs input 'in', the configuration has only "
        "'CORRID', 'END', 'READY', 'START', 'in2', 'x', 'z'",
    ),
    (SEQUENCE, "int32_false_true", "fp32_false_true", ("sequence_batching",), "the file has INT32"),
    (OLDEST, "sequences: 16", "sequences: -1", ("sequence_batching", "oldest"), "not 0 or more"),
    (OLDEST, "[ 2, 4 ]", "[ 2, 5 ]", ("sequence_batching", "oldest"), "5 is not between"),
    (
        *(OLDEST, "version_policy", "dynamic_batching { }\nversion_policy"),
        *(("sequence_batching",), "sequence_batching cannot be given beside dynamic_batching"),
    ),
    (
        *(OLDEST, "version_policy", "response_cache { enable: true }\nversion_policy"),
        *(("response_cache",), "does not go with sequence_batching"),
    ),
    ("onnx", "onnxruntime_onnx", "onnx", ("platform",), "unknown"),
    ("onnx", "onnxruntime_onnx", "custom", ("platform",), "a model.py does"),
    ("onnx", 'platform: "onnxruntime_onnx"', 'platform: "libtorch"', ("platform",), "pytorch_lib"),
    (
        *("onnx", 'platform: "onnxruntime_onnx"', 'platform: "sklearn_skops" backend: "xgboost"'),
        *(("platform",), "does not go with backend 'xgboost'"),
    ),
    ("onnx", 'input { name: "x"', 'input { name: "z"', ("input", 0, "name"), "the file has only"),
    (
        "onnx",
        'output { name: "y"',
        'output { name: "z"',
        ("output", 0, "name"),
        "the file has only",
    ),
    (
        *(
            "onnx",
            'output { name: "y" data_type: TYPE_FP32',
            'output { name: "y" data_type: TYPE_FP64',
        ),
        *(("output", 0, "data_type"), "the file has FP32"),
    ),
    ("onnx", "dims: [ 4 ] }", "dims: [ 5 ] }", ("input", 0, "dims"), "the file has shape [-1, 4]"),
    ("onnx", "dims: [ 4 ] }", "dims: [ 4 ] optional: true }", ("input", 0, "optional"), "optional"),
    ("onnx", "size: 16", "size: 0", ("input", 0), "the file has shape [-1, 4]", ("output", 0)),
    (
        *("onnx", "max_batch_size", "optimization { graph { level: 7 } }\nmax_batch_size"),
        *(("optimization",), "expected one of"),
    ),
    (
        *("onnx", "max_batch_size", f"{ACCELERATED}max_batch_size"),
        *(("optimization",), "accelerator 'warp', known are"),
    ),
    (
        *("onnx", "max_batch_size", f"{THREADS}max_batch_size"),
        *(("parameters", "intra_op_thread_count"), "expected a whole number"),
    ),
    ("ensemble", '"ensemble"', '"ensembles"', ("platform",), "needs platform 'ensemble'"),
    ("ensemble", 'platform: "ensemble"', "", ("ensemble_scheduling",), "which is not given"),
    ("ensemble", "max_batch_size: 8", "max_batch_size: 99", ("max_batch_size",), "at most 16"),
    ("ensemble", 'platform: "ensemble"', 'platform: "ensemble" backend: "p"', ("backend",), ""),
    ("ensemble", 'model_name: "n"\n      model_version: 1', "model_version: 1", (*STEP, 1), "no"),
    ("ensemble", "model_version: 1\n", "model_version: 2\n", (*STEP, 1, "model_version"), "2 of"),
    ("ensemble", "      model_version: 1\n", "", (*STEP, 1), "write -1 for the latest"),
    (
        *(
            "ensemble",
            'model_name: "n"\n      model_version: 1',
            'model_name: "o"\n  model_version: 1',
        ),
        *((*STEP, 1, "model_name"), "calls model 'o', which is at none of the paths"),
    ),
    (
        "ensemble",
        'key: "x" value: "B"',
        'key: "z" value: "B"',
        (*STEP, 1, "input_map", "z"),
        "no in",
    ),
    ("ensemble", 'key: "y" value: "C"', 'key: "z" value: "C"', (*STEP, 1, "output_map", "z"), ""),
    (
        "ensemble",
        'value: "B" }\n    }',
        'value: "D" }\n    }',
        (*STEP, 0, "output_map"),
        "D",
        (*STEP, 1),
    ),
    ("ensemble", 'value: "A" }', 'value: "Z" }', (*STEP, 0), "no step writes", ("input",)),
    (
        *("ensemble", '"A" data_type: TYPE_FP32', '"A" data_type: TYPE_INT32'),
        *((*STEP, 0, "input_map", "x"), "datatypes differ"),
    ),
    (
        "ensemble",
        "dims: [ 4 ] }\noutput",
        "dims: [ 7 ] }\noutput",
        (*STEP, 0, "input_map"),
        "shapes",
    ),
    ("ensemble", '"C" data_type: TYPE_FP32', '"C" data_type: TYPE_BOOL', ("output", 0), "differ"),
    (
        *(
            "ensemble",
            "ensemble_scheduling {",
            "instance_group { count: 1 }\nensemble_scheduling {",
        ),
        *(("instance_group",), "an ensemble cannot have instance_group"),
    ),
    (
        *("ensemble", "ensemble_scheduling {", "optimization { }\nensemble_scheduling {"),
        *(("optimization",), "an ensemble cannot have optimization"),
    ),
    ("python", "TYPE_STRING dims: [ -1 ]", "TYPE_STRING", ("input", 0), "has no dims"),
    (
        "python",
        '"python"\nruntime: ""',
        '"vllm"\nruntime: "model.py"',
        ("backend",),
        "asks for a Python-based",
    ),
]


def breaking(base, old, new):
    """Return the name of the configuration of a good repository, and the files with it broken."""
    files = dict(BASES[base])
    name = next(iter(files))
    assert old in files[name], old
    files[name] = files[name].replace(old, new, 1)
    return name, files


def is_within(finding, text, path):
    """Tell whether a finding is at the field of a text, or at the message it would be in."""
    positions = Positions(text)
    found = positions.without(path)
    return found.begin <= offset_of(text, finding.line, finding.column) < found.end


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value[0]}: {value[2][:40]}")
def test_a_value_that_does_not_fit_is_blamed_by_its_field(repository, value):
    base, old, new, path, words, *also = value
    name, files = breaking(base, old, new)
    folder = repository(files)
    findings = check_paths([folder], GPUS).findings
    own = [one for one in findings if is_within(one, files[name], path)]
    assert any(words in one.text for one in own), findings
    assert {one.file for one in findings} == {folder / name}
    others = [one for one in findings if one not in own]
    assert all(any(is_within(one, files[name], more) for more in also) for one in others), others


GONE = None
DATA, STATE = "input_data_file", "data_file"
NO_CLASS = "import os\n"

# base, what becomes of the files (a name with "/" is an empty folder), the file that is blamed, its
# lines, the rule, words
LAYOUT = [
    ("onnx", {"n/1/model.onnx": GONE}, "n", [0], "layout", "no version folder, such as n/1"),
    ("onnx", {"n/1/model.onnx": GONE, "n/1/": ""}, "n", [0], "file", "1/ is empty"),
    ("onnx", {"n/1/model.onnx": b""}, "n", [0], "file", "no ONNX model"),
    ("onnx", {"n/1/model.onnx": onnx_model()[:-9]}, "n", [0], "file", "no ONNX model"),
    ("onnx", {"n/1/model.onnx": b"no model"}, "n", [0], "file", "no ONNX model"),
    ("onnx", {"n/1/model.onnx": onnx_model(batch=2)}, "n/config.pbtxt", [4, 5], "file", "[2, 4]"),
    ("onnx", {"n/1/model.onnx": onnx_model(batch=None)}, "n/config.pbtxt", [4, 5], "file", "[4]"),
    ("onnx", {"n/1/model.onnx": onnx_model(width=5)}, "n/config.pbtxt", [4, 5], "file", "[-1, 5]"),
    (
        *("onnx", {"n/1/model.onnx": onnx_model(kind=TensorProto.INT64)}, "n/config.pbtxt"),
        *([4, 5], "file", "the file has INT64"),
    ),
    ("onnx", {"n/labels.txt": GONE}, "n/config.pbtxt", [5], "file", "there is no such file"),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/1/Model.onnx": onnx_model()}, "n"),
        *([0], "file", "it must be spelled 'model.onnx'"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/1/net.onnx": onnx_model()}, "n"),
        *([0], "file", "it must be called 'model.onnx'"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/model.onnx": onnx_model()}, "n"),
        *([0], "layout", "it belongs in a version folder: 1/"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/1/a/model.onnx": onnx_model()}, "n"),
        *([0], "file", "but it belongs in 1/ itself"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/v1/model.onnx": onnx_model()}, "n"),
        *([0], "layout", "folder 'v1' is no version: expected a decimal number"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/01/model.onnx": onnx_model()}, "n"),
        *([0], "layout", "folder '01' is no version"),
    ),
    (
        *("onnx", {"n/1/model.onnx": GONE, "n/latest/model.onnx": onnx_model()}, "n"),
        *([0], "layout", "folder 'latest' is no version"),
    ),
    ("everything", {"m/1/model.bin": GONE}, "m", [0], "layout", "no version folder"),
    (
        *("everything", {"m/1/model.bin": GONE, "m/1/": ""}, "m/config.pbtxt"),
        *(["default_model_filename"], "file", "there is no 1/model.bin"),
    ),
    (
        "everything",
        {"m/labels.txt": "a\n"},
        "m/config.pbtxt",
        ["SHA256:"],
        "config",
        "the SHA256 of",
    ),
    (
        "everything",
        {"m/warmup/one": GONE},
        "m/config.pbtxt",
        ["input_data_file"],
        "config",
        "no such file",
    ),
    (
        "everything",
        {"m/warmup/one": b"\1"},
        "m/config.pbtxt",
        ["input_data_file"],
        "config",
        "has 1 bytes",
    ),
    (
        "sequence",
        {"s/initial_state/one": GONE},
        "s/config.pbtxt",
        ["data_file"],
        "config",
        "no file 'one'",
    ),
    (
        "sequence",
        {"s/initial_state/one": ONE + ONE},
        "s/config.pbtxt",
        ["data_file"],
        "config",
        "has more",
    ),
    (
        "sequence",
        {"s/1/model.onnx": GONE, "s/3/model.onnx": GONE},
        "s",
        [0],
        "layout",
        "no version folder",
    ),
    (
        *("sequence", {"s/1/model.onnx": GONE, "s/3/model.onnx": GONE, "s/2/x": ""}, "s"),
        *([0], "layout", "allows none"),
    ),
    ("python", {"p/1/model.py": GONE, "p/1/": ""}, "p", [0], "file", "1/ is empty"),
    ("python", {"p/1/model.py": MODEL_PY + "  x"}, "p/1/model.py", [4], "file", "no Python"),
    ("python", {"p/1/model.py": "def f(:\n"}, "p/1/model.py", [1], "file", "no Python"),
    ("python", {"p/1/model.py": b"\0"}, "p/1/model.py", [0], "file", "no Python"),
    ("python", {"p/1/model.py": NO_CLASS}, "p/1/model.py", [0], "file", "no class TritonPython"),
    ("python", {"p/config.pbtxt": b"\xff"}, "p/config.pbtxt", [1], "syntax", "is not UTF-8"),
    ("python", {"p/config.pbtxt": "\ufeffname"}, "p/config.pbtxt", [1], "syntax", "byte order"),
    ("python", {"p/config.pbtxt": "x" * (5 << 20)}, "p/config.pbtxt", [0], "syntax", "larger than"),
    ("python", {"p/config.pbtxt": "}"}, "p/config.pbtxt", [1], "syntax", "expected"),
    ("python", {"p/config.pbtxt": 'name: "p'}, "p/config.pbtxt", [1], "syntax", "no quote"),
    ("python", {"p/config.pbtxt/x": "", "p/config.pbtxt": GONE}, "p", [0], "layout", "not a file"),
]


@pytest.mark.parametrize("slip", LAYOUT, ids=lambda slip: f"{slip[0]}: {[*slip[1]]} {slip[5]}")
def test_a_file_that_is_not_as_it_should_be_is_told(repository, slip):
    base, changes, blamed, lines, rule, words = slip
    files = {name: text for name, text in BASES[base].items() if changes.get(name, "") is not GONE}
    given = {name: text for name, text in changes.items() if text is not GONE and name[-1] != "/"}
    folder = repository(files | given)
    for name in changes:
        if name.endswith("/"):
            (folder / name).mkdir()
    findings = check_paths([folder], GPUS).findings
    assert {one.level for one in findings} == {"error"}
    assert any(words in one.text and one.rule == rule for one in findings), findings
    assert {one.file for one in findings} == {folder / blamed}, findings
    if isinstance(lines[0], str):  # that of the configuration with these words
        text = next(iter(BASES[base].values())).splitlines()
        lines = [next(n for n, line in enumerate(text, 1) if word in line) for word in lines]
    assert [one.line for one in findings] == lines, findings
