"""Version folders, model files and instances."""

import pytest

from inferd.config.defaults import normalised
from inferd.config.model import InstanceGroup, ModelConfig, VersionPolicy
from inferd.core.interfaces import ModelFiles, Placement
from inferd.errors import InvalidConfig
from inferd.repository.layout import (
    FoundModel,
    choose_versions,
    derived,
    files_of,
    placements,
    version_folders,
)


def folders(tmp_path, *names):
    for name in names:
        (tmp_path / name).mkdir()
    return tmp_path


def test_version_folders_have_plain_decimal_numbers(tmp_path):
    found, _ = version_folders(folders(tmp_path, "0", "1", "10", "2"))
    assert list(found.items()) == [(n, tmp_path / str(n)) for n in (0, 1, 2, 10)]


@pytest.mark.parametrize("name", ["01", "00", "v1", "2abc", "-3", "+1", "1.0", "\u0661", "9" * 20])
def test_other_folders_are_ignored_with_the_reason(tmp_path, name):
    found, ignored = version_folders(folders(tmp_path, "1", name))
    assert list(found) == [1]
    text = f"folder '{name}' is no version: expected a decimal number without leading 0"
    likely = {"01": 1, "00": 0, "v1": 1, "1.0": 1}
    assert ignored == (f"{text}, here {likely[name]}" if name in likely else text,)


def test_reserved_and_hidden_folders_and_files_are_passed_over(tmp_path):
    folders(tmp_path, "warmup", "initial_state", "configs", "__pycache__", ".git", "1")
    (tmp_path / "2").write_text("a file")
    (tmp_path / "labels.txt").write_text("")
    assert version_folders(tmp_path) == ({1: tmp_path / "1"}, ())


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (None, (5,)),
        (VersionPolicy(latest=1), (5,)),
        (VersionPolicy(latest=2), (3, 5)),
        (VersionPolicy(latest=9), (1, 3, 5)),
        (VersionPolicy(latest=0), ()),
        (VersionPolicy(all=True), (1, 3, 5)),
        (VersionPolicy(), (1, 3, 5)),
        (VersionPolicy(specific=(5, 1, 7)), (1, 5)),
        (VersionPolicy(specific=(7,)), ()),
        (VersionPolicy(specific=()), ()),
    ],
)
def test_the_policy_chooses_versions(policy, chosen):
    assert choose_versions(policy, [3, 1, 5]) == chosen


def test_no_versions_leave_no_choice():
    assert choose_versions(VersionPolicy(latest=1), []) == ()


FILES = {
    "model.plan": ("tensorrt", ""),
    "model.onnx": ("onnxruntime", ""),
    "model.xml": ("openvino", ""),
    "model.pt": ("pytorch", ""),
    "model.pt2": ("pytorch", ""),
    "model.py": ("python", ""),
    "model.graphdef": ("tensorflow", "tensorflow_graphdef"),
    "model.savedmodel": ("tensorflow", "tensorflow_savedmodel"),
    "model-symbol.json": ("mxnet", ""),
    "model.netdef": ("caffe2", ""),
}


@pytest.mark.parametrize(("file", "backend_and_platform"), FILES.items())
def test_the_file_in_the_version_folder_tells_the_backend(tmp_path, file, backend_and_platform):
    (tmp_path / file).write_text("")
    config = derived(ModelConfig(""), tmp_path, "m")
    assert (config.backend, config.platform) == backend_and_platform
    assert config.default_model_filename == file


def test_a_folder_of_external_data_counts_as_the_model_file(tmp_path):
    (tmp_path / "model.onnx").mkdir()
    assert derived(ModelConfig(""), tmp_path, "m").backend == "onnxruntime"


@pytest.mark.parametrize(
    ("said", "backend", "file"),
    [
        ({"platform": "onnxruntime_onnx"}, "onnxruntime", "model.onnx"),
        ({"platform": "foo", "backend": "python"}, "python", ""),
        ({"backend": "onnxruntime"}, "onnxruntime", ""),
        ({"backend": "python", "default_model_filename": "a.py"}, "python", "a.py"),
        ({"default_model_filename": "a.onnx"}, "onnxruntime", "a.onnx"),
        ({"platform": "unknown"}, "", ""),
        ({"platform": "ensemble"}, "", ""),
        ({"platform": "pytorch_libtorch", "default_model_filename": "a"}, "pytorch", "a"),
    ],
)
def test_what_the_config_says_goes_before_what_lies_there(tmp_path, said, backend, file):
    (tmp_path / "model.pt").write_text("")
    config = derived(ModelConfig("", **said), tmp_path, "m")
    assert (config.backend, config.default_model_filename) == (backend, file)
    assert config.platform == said.get("platform", "")


@pytest.mark.parametrize(
    ("backend", "present", "file", "platform"),
    [
        ("pytorch", "model.pt2", "model.pt2", ""),
        ("pytorch", "model.pt", "model.pt", ""),
        ("tensorflow", "model.graphdef", "model.graphdef", "tensorflow_graphdef"),
    ],
)
def test_a_backend_of_several_formats_takes_the_one_that_lies_there(
    tmp_path, backend, present, file, platform
):
    (tmp_path / present).write_text("")
    config = derived(ModelConfig("", backend=backend), tmp_path, "m")
    assert (config.default_model_filename, config.platform) == (file, platform)


def test_a_tensorflow_file_tells_its_platform_by_its_ending():
    config = ModelConfig("", backend="tensorflow", default_model_filename="my.graphdef")
    assert derived(config, None, "m").platform == "tensorflow_graphdef"


@pytest.mark.parametrize(("present", "file"), [("model.mine", "model.mine"), ("model.bin", "")])
def test_a_model_folder_may_name_its_backend(tmp_path, present, file):
    (tmp_path / present).write_text("")
    config = derived(ModelConfig(""), tmp_path, "my.model.mine")
    assert (config.backend, config.default_model_filename) == ("mine", file)


@pytest.mark.parametrize("name", ["m", "m."])
def test_a_model_nothing_tells_the_backend_of_is_refused(tmp_path, name):
    with pytest.raises(InvalidConfig, match=r"nothing says which backend .* no known model file"):
        derived(ModelConfig(""), tmp_path, name)


def test_a_file_of_unknown_ending_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidConfig, match=r"'a\.bin' has no known ending, expected one of model"):
        derived(ModelConfig("", default_model_filename="a.bin"), tmp_path, "m")


def test_the_model_file_lies_in_the_version_folder(tmp_path):
    (tmp_path / "3").mkdir()
    file = tmp_path / "3" / "a.onnx"
    file.write_text("")
    config = ModelConfig("m", default_model_filename="a.onnx")
    found = files_of(FoundModel("m", tmp_path), 3, config)
    assert found == ModelFiles(tmp_path, 3, tmp_path / "3", file)


def test_a_model_that_needs_no_file_has_its_version_folder(tmp_path):
    found = files_of(FoundModel("m", tmp_path), 1, ModelConfig("m", backend="identity"))
    assert found.file == found.version_folder == tmp_path / "1"


def test_a_missing_model_file_is_named(tmp_path):
    config = ModelConfig("m", default_model_filename="model.onnx")
    with pytest.raises(InvalidConfig) as refused:
        files_of(FoundModel("m", tmp_path), 1, config)
    assert refused.value.message == "model 'm' version 1: there is no 1/model.onnx"


@pytest.mark.parametrize("name", ["../2/model.onnx", "/etc/passwd"])
def test_a_model_file_outside_the_version_folder_is_refused(tmp_path, name):
    config = ModelConfig("m", default_model_filename=name)
    with pytest.raises(InvalidConfig, match="leads out of the version folder"):
        files_of(FoundModel("m", tmp_path), 1, config)


def test_a_bare_file_is_its_own_version(tmp_path):
    file = tmp_path / "a.onnx"
    model = FoundModel("a", tmp_path, file=file)
    assert files_of(model, 1, ModelConfig("a")) == ModelFiles(tmp_path, 1, tmp_path, file)


def place(*groups, gpu_count=0, backend=""):
    config = ModelConfig("m", backend=backend, instance_group=groups)
    return placements(normalised(config, "m", gpu_count), gpu_count)


def test_the_automatic_group_has_instances_named_after_the_model():
    assert place(backend="onnxruntime") == ([Placement("m_0"), Placement("m_1")], [])


def test_an_ensemble_has_no_instances():
    assert placements(ModelConfig("e", platform="ensemble"), 0) == ([], [])


def test_instances_are_numbered_through_groups_and_gpus():
    groups = InstanceGroup("a", 2, "KIND_GPU", (0, 2)), InstanceGroup("b", 1, "KIND_CPU")
    assert place(*groups, gpu_count=3) == (
        [
            Placement("a_0", gpu=True, device_id=0, host_policy="gpu_0"),
            Placement("a_1", gpu=True, device_id=0, host_policy="gpu_0"),
            Placement("a_2", gpu=True, device_id=2, host_policy="gpu_2"),
            Placement("a_3", gpu=True, device_id=2, host_policy="gpu_2"),
            Placement("b_0"),
        ],
        [],
    )


def test_without_gpus_a_group_for_them_runs_on_the_cpu_with_a_warning():
    placed, warnings = place(InstanceGroup("g", 1, "KIND_GPU", (0,)))
    assert placed == [Placement("g_0")]
    assert warnings == [
        "model 'm', instance_group 'g' asks for a GPU, there is none: it runs on the CPU"
    ]


def test_a_gpu_that_is_not_there_while_others_are_is_refused():
    expected = r"^model 'm', instance_group 'g' lists gpus \[1, 2\], this machine has 0 to 0$"
    with pytest.raises(InvalidConfig, match=expected):
        place(InstanceGroup("g", 1, "KIND_GPU", (0, 1, 2)), gpu_count=1)


def test_passive_groups_get_no_instances():
    placed, warnings = place(InstanceGroup("a", passive=True), InstanceGroup("b"))
    assert placed == [Placement("b_0")]
    assert warnings == [
        "model 'm', instance_group 'a' is passive: it gets no requests and no instances"
    ]


def test_a_model_of_passive_groups_alone_is_refused():
    with pytest.raises(InvalidConfig, match="every instance_group is passive"):
        place(InstanceGroup("a", passive=True))


def test_instances_have_the_host_policy_of_their_group_or_of_their_kind():
    placed, _ = place(
        InstanceGroup("a", 1, "KIND_MODEL"), InstanceGroup("b", 1, "KIND_MODEL", host_policy="mine")
    )
    assert [one.host_policy for one in placed] == ["model", "mine"]
