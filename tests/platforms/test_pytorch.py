"""TorchScript and torch.export files through PyTorch."""

import threading
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from inferd.backends.pytorch.backend import PytorchBackend
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
CPU = Placement("m_0")


def files(folder, name="model.pt"):
    (folder / "1").mkdir(exist_ok=True)
    return ModelFiles(folder, 1, folder / "1", folder / "1" / name)


def save(folder, module, name="model.pt"):
    found = files(folder, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module.eval()).save(str(found.file))
    return found


def config(inputs, outputs, datatype=FP32, dims=(-1,), **more):
    return ModelConfig(
        "m",
        input=tuple(ModelInput(name, datatype, dims) for name in inputs),
        output=tuple(ModelOutput(name, datatype, dims) for name in outputs),
        **more,
    )


def tensors(**arrays):
    return [
        Tensor.from_numpy(name, array, FP32 if array.dtype == np.float32 else DataType.BYTES)
        for name, array in arrays.items()
    ]


def answer(found, wanted, inputs, outputs=()):
    backend = PytorchBackend()
    instance = backend.open(found, backend.complete(found, wanted), CPU)
    asked = [WantedOutput(name) for name in outputs]
    [response] = instance.execute([InferRequest("m", inputs=inputs, outputs=asked)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


class Total(torch.nn.Module):
    def forward(self, x):
        return x.sum()


class AddSub(torch.nn.Module):
    def forward(self, x, y):
        return x + y, x - y


class Shifted(torch.nn.Module):
    def forward(self, x, by: torch.Tensor | None = None, names: list[str] | None = None):
        y = x if by is None else x + by
        return y if names is None else y + len(names)


ONES, TWOS = np.ones(3, np.float32), np.full(3, 2, np.float32)


@pytest.mark.parametrize(
    ("inputs", "arrays"),
    [
        (("x", "y"), {"x": ONES, "y": TWOS}),
        (("y", "x"), {"y": TWOS, "x": ONES}),
        (("IN__1", "IN__0"), {"IN__1": TWOS, "IN__0": ONES}),
        (("FIRST", "SECOND"), {"FIRST": ONES, "SECOND": TWOS}),
    ],
)
@pytest.mark.parametrize("outputs", [("SUM", "DIFF"), ("OUT__0", "OUT__1")])
def test_inputs_go_by_argument_by_number_or_in_order(tmp_path, inputs, arrays, outputs):
    got = answer(save(tmp_path, AddSub()), config(inputs, outputs), tensors(**arrays))
    assert [array.tolist() for array in got.values()] == [[3, 3, 3], [-1, -1, -1]]


def optional(*names):
    """A configuration of a Shifted whose inputs `names` may be left out."""
    made = config(["x", "by", "names"], ["y"])
    kinds = {"names": DataType.BYTES}
    inputs = [
        replace(one, optional=one.name in names, datatype=kinds.get(one.name, FP32))
        for one in made.input
    ]
    return replace(made, input=tuple(inputs))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [1, 1, 1]),
        ({"by": TWOS}, [3, 3, 3]),
        ({"names": np.array([b"a"], object)}, [2, 2, 2]),
        ({"names": np.array([b"a", b"b"], object), "by": TWOS}, [5, 5, 5]),
    ],
)
def test_an_optional_input_that_is_left_out_has_forwards_default(tmp_path, more, expected):
    found = save(tmp_path, Shifted())
    got = answer(found, optional("by", "names"), tensors(x=ONES, **more))
    assert got["y"].tolist() == expected


def test_an_argument_without_default_cannot_be_optional(tmp_path):
    with pytest.raises(InvalidConfig, match="'x' optional"):
        answer(save(tmp_path, Shifted()), optional("x"), tensors(x=ONES))


def test_a_traced_model_runs(tmp_path):
    found = files(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(AddSub(), (torch.ones(2), torch.ones(2))).save(str(found.file))
    got = answer(found, config(("x", "y"), ("SUM", "DIFF")), tensors(x=ONES, y=TWOS))
    assert got["SUM"].tolist() == [3, 3, 3]


def test_an_output_without_dims_is_dims_of_1(tmp_path):
    wanted = config(("x",), ("y",))
    wanted = replace(wanted, output=(ModelOutput("y", FP32, (1,)),))
    assert answer(save(tmp_path, Total()), wanted, tensors(x=ONES))["y"].tolist() == [3]


def test_outputs_go_by_their_number(tmp_path):
    wanted = config(("x", "y"), ("OUT__1", "OUT__0"))
    got = answer(save(tmp_path, AddSub()), wanted, tensors(x=ONES, y=TWOS), ("OUT__1",))
    assert {name: array.tolist() for name, array in got.items()} == {"OUT__1": [-1, -1, -1]}


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (("x",), "its argument 'y' is no input"),
        (("a", "b", "c"), "has 3 inputs, but forward takes x, y"),
        (("a__0", "b__2"), "are not 0 to 1"),
    ],
)
def test_names_that_fit_no_argument_are_refused(tmp_path, inputs, text):
    with pytest.raises(InvalidConfig, match=text):
        answer(save(tmp_path, AddSub()), config(inputs, ("SUM", "DIFF")), [])


def test_a_model_without_configuration_says_what_to_write(tmp_path):
    with pytest.raises(InvalidConfig, match=r"list input and output; forward takes 'x' \(Tensor\)"):
        PytorchBackend().complete(save(tmp_path, AddSub()), ModelConfig("m"))


class Dicts(torch.nn.Module):
    def forward(self, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"TWICE": given["A"] * 2, "B": given["B"]}


class Lists(torch.nn.Module):
    def forward(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [given[0] - given[1]]


def test_dicts_go_by_their_keys(tmp_path):
    wanted = config(("A", "B"), ("B", "TWICE"))
    got = answer(save(tmp_path, Dicts()), wanted, tensors(A=ONES, B=TWOS))
    assert got["B"].tolist() == got["TWICE"].tolist() == [2, 2, 2]


def test_lists_go_in_order(tmp_path):
    got = answer(save(tmp_path, Lists()), config(("A", "B"), ("C",)), tensors(A=ONES, B=TWOS))
    assert got["C"].tolist() == [-1, -1, -1]


class Words(torch.nn.Module):
    def forward(self, words: list[str]) -> list[str]:
        return [word.upper() for word in words]


def test_strings_are_text(tmp_path):
    wanted = config(("words",), ("UPPER",), DataType.BYTES)
    words = np.array(["ä", "bc"], object)
    got = answer(save(tmp_path, Words()), wanted, tensors(words=words))
    assert [word.decode() for word in got["UPPER"]] == ["ä", "BC"]


class Identity(torch.nn.Module):
    def forward(self, x):
        return x.clone()


class Odd(torch.nn.Module):
    """Takes and gives what is no tensor."""

    def forward(self, x, times: int, state: tuple[torch.Tensor, torch.Tensor], by: float = 1.0,
                words: list[str] | None = None, odd: dict[str, int] | None = None):  # fmt: skip
        first, second = state
        nested = (x * times * by, [first + 1, second]), {"count": times, "share": times / 2}
        return nested, times > 2, None if words is None else [word + "!" for word in words], "end"


ODD_OUTPUTS = (
    ModelOutput("product", FP32, (-1,)),
    ModelOutput("first", FP32, (-1,)),
    ModelOutput("second", FP32, (-1,)),
    ModelOutput("count_", DataType.INT32, (1,)),
    ModelOutput("share_", FP32, (1,)),
    ModelOutput("many", DataType.BOOL, (1,)),
    ModelOutput("words_", DataType.BYTES, (-1,)),
    ModelOutput("end", DataType.BYTES, (1,)),
)
THREE = Tensor.from_numpy("times", np.array([3], np.int64), DataType.INT64)


def odd_config(*inputs, **more):
    whole = ModelInput("times", DataType.INT64, (1,))
    return ModelConfig("m", input=(whole, *inputs), output=ODD_OUTPUTS, **more)


def test_arguments_and_results_may_be_numbers_texts_and_nested(tmp_path):
    reals = [ModelInput(name, FP32, (-1,)) for name in ("x", "state.0", "state.1", "by")]
    wanted = odd_config(*reals, ModelInput("words", DataType.BYTES, (-1,)))
    given = tensors(x=ONES, by=TWOS[:1], words=np.array(["a", "b"], object))
    given += [THREE, *tensors(**{"state.0": ONES, "state.1": TWOS})]
    got = answer(save(tmp_path, Odd()), wanted, given)
    found = {name: array.tolist() for name, array in got.items()}
    assert found == {
        "product": [6, 6, 6], "first": [2, 2, 2], "second": [2, 2, 2], "count_": [3],
        "share_": [1.5], "many": [True], "words_": [b"a!", b"b!"], "end": [b"end"],
    }  # fmt: skip


def test_what_may_be_left_out_is(tmp_path):
    reals = [ModelInput(name, FP32, (-1,)) for name in ("x", "state.0", "state.1")]
    given = [*tensors(x=ONES), THREE, *tensors(**{"state.0": ONES, "state.1": TWOS})]
    found = save(tmp_path, Odd())
    got = answer(found, odd_config(*reals), given, ("product", "end"))
    assert got["product"].tolist() == [3, 3, 3]
    with pytest.raises(BackendFailed, match="gave output 'words_' as NoneType, not a tensor"):
        answer(found, odd_config(*reals), given)


def test_numbers_do_not_go_with_batches(tmp_path):
    reals = [ModelInput(name, FP32, (-1,)) for name in ("x", "state.0", "state.1")]
    wanted = odd_config(*reals, max_batch_size=4)
    with pytest.raises(InvalidConfig, match=r"'times' is for an argument of type int, which has"):
        PytorchBackend().complete(save(tmp_path, Odd()), wanted)


def test_a_number_of_a_wrong_datatype_is_told(tmp_path):
    wanted = ModelConfig(
        "m",
        input=tuple(ModelInput(n, FP32, (-1,)) for n in ("x", "times", "state.0", "state.1")),
        output=ODD_OUTPUTS,
    )
    with pytest.raises(InvalidConfig, match="'times' is FP32, but the argument it is for is int"):
        PytorchBackend().complete(save(tmp_path, Odd()), wanted)


class Detector(torch.nn.Module):
    """As torchvision's detectors: losses and detections."""

    def forward(
        self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]] | None = None
    ) -> tuple[dict[str, torch.Tensor], list[dict[str, torch.Tensor]]]:
        losses: dict[str, torch.Tensor] = {}
        found = [{"boxes": image * 2, "scores": image.sum(0, keepdim=True)} for image in images]
        return losses, found


def test_what_lies_in_dicts_goes_by_its_keys_if_there_is_one_of_each(tmp_path):
    found = save(tmp_path, Detector())
    got = answer(found, config(("image",), ("scores", "boxes")), tensors(image=ONES))
    assert {name: array.tolist() for name, array in got.items()} == {
        "scores": [3], "boxes": [2, 2, 2],
    }  # fmt: skip
    names = ("boxes0", "scores0", "boxes1", "scores1")
    got = answer(found, config(("a", "b"), names), tensors(a=ONES, b=TWOS))
    assert [array.tolist() for array in got.values()] == [[2, 2, 2], [3], [4, 4, 4], [6]]


NUMBERS = [datatype for datatype in DataType if datatype is not DataType.BYTES]


@pytest.mark.parametrize("datatype", NUMBERS)
@pytest.mark.parametrize("kind", ["script", "export"])
def test_every_datatype_comes_back_bit_for_bit(tmp_path, datatype, kind):
    array = np.array([0, 1, 100, 127]).astype(datatype.numpy)
    if kind == "script":
        found = save(tmp_path, Identity())
    else:
        example = torch.from_numpy(array)
        if datatype is DataType.BF16:
            example = example.view(torch.bfloat16)
        found = files(tmp_path, "model.pt2")
        torch.export.save(torch.export.export(Identity(), (example,)), found.file)
    tensor = Tensor("x", datatype, (4,), array.tobytes())
    got = answer(found, config(("x",), ("y",), datatype, (4,)), [tensor])
    assert got["y"].tobytes() == array.tobytes()


def test_a_wrong_datatype_in_the_configuration_is_told(tmp_path):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x.double()

    with pytest.raises(BackendFailed, match="'y' as float64, its configuration says FP32"):
        answer(save(tmp_path, Doubled()), config(("x",), ("y",)), tensors(x=ONES))


class Changes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        x += 1
        self.count += 1
        return x, self.count


def test_what_a_model_writes_stays_its_own(tmp_path):
    found, wanted = save(tmp_path, Changes()), config(("x",), ("y", "count"))
    backend = PytorchBackend()
    instance = backend.open(found, backend.complete(found, wanted), CPU)
    array = np.ones(3, np.float32)
    request = InferRequest("m", inputs=[Tensor("x", FP32, (3,), array)])
    [first], [second] = instance.execute([request]), instance.execute([request])
    assert array.tolist() == [1, 1, 1]
    assert first.outputs[1].numpy().tolist() == [1, 1, 1]
    assert second.outputs[1].numpy().tolist() == [2, 2, 2]


class Attribute(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.total = torch.zeros(3)

    def forward(self, x):
        self.total += x
        return self.total


class Listed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.totals = [torch.zeros(3)]

    def forward(self, x):
        self.totals[0] += x
        return self.totals[0]


class Replaced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(0))

    def forward(self, x):
        if len(self.total) == 0:
            self.total = torch.zeros_like(x)
        self.total += x
        return self.total


@pytest.mark.parametrize("module", [Attribute, Listed, Replaced])
def test_an_answer_outlives_the_next_change_of_the_models_state(tmp_path, module):
    found, wanted = save(tmp_path, module()), config(("x",), ("y",))
    backend = PytorchBackend()
    instance = backend.open(found, backend.complete(found, wanted), CPU)
    request = InferRequest("m", inputs=tensors(x=ONES))
    first, second = instance.execute([request, request])
    assert first.outputs[0].numpy().tolist() == [1, 1, 1]
    assert second.outputs[0].numpy().tolist() == [2, 2, 2]


def test_a_script_writes_its_results_to_no_request(tmp_path):
    class Results(torch.nn.Module):
        def forward(self, x):
            return torch.add(x, 1, out=x)

    found, wanted = save(tmp_path, Results()), config(("x",), ("y",))
    array = np.ones(3, np.float32)
    assert answer(found, wanted, tensors(x=array))["y"].tolist() == [2, 2, 2]
    assert array.tolist() == [1, 1, 1]


def test_the_frameworks_error_is_told_in_one_line(tmp_path):
    class Product(torch.nn.Module):
        def forward(self, x, y):
            return x @ y

    found, wanted = save(tmp_path, Product()), config(("x", "y"), ("z",))
    with pytest.raises(BackendFailed, match=r"^model 'm': PyTorch cannot run it: .*inconsistent"):
        answer(found, wanted, tensors(x=ONES, y=np.ones(4, np.float32)))


# --- torch.export ---


def exported(folder, module, *example, dynamic=None):
    found = files(folder, "model.pt2")
    program = torch.export.export(module.eval(), example, dynamic_shapes=dynamic)
    torch.export.save(program, found.file)
    return found


class Repeats(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        return y, y, x, x * 3, x


@pytest.mark.parametrize(
    "names", [(), ("OUT__0", "OUT__1", "OUT__2", "OUT__3", "OUT__4"), ("a", "b", "c", "d", "e")]
)
def test_a_tensor_that_is_returned_again_is_an_output_again(tmp_path, names):
    found = exported(tmp_path, Repeats(), torch.ones(3))
    wanted = config([], names, dims=(3,)) if names else ModelConfig("m")
    got = answer(found, wanted, tensors(x=ONES))
    assert [array.tolist()[0] for array in got.values()] == [2, 2, 1, 3, 1]
    assert list(got) == list(names or ("mul", "mul_2", "x", "mul_1", "x_1"))


def test_programs_are_loaded_at_the_same_time(tmp_path):
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    found = [exported(folder, AddSub(), torch.ones(2), torch.ones(2)) for folder in folders]
    with ThreadPoolExecutor(4) as pool:
        completed = pool.map(lambda one: PytorchBackend().complete(one, ModelConfig("m")), found)
        assert all(len(one.output) == 2 for one in completed)


def test_an_exported_program_needs_no_configuration(tmp_path):
    count = torch.export.Dim("count", min=1, max=9)
    pair = torch.ones(2, 3), torch.ones(2, 3)
    found = exported(tmp_path, AddSub(), *pair, dynamic=({0: count}, {0: count}))
    completed = PytorchBackend().complete(found, ModelConfig("m"))
    assert PytorchBackend().complete_alone(found, ModelConfig("m")) == completed
    assert completed.input == (ModelInput("x", FP32, (3,)), ModelInput("y", FP32, (3,)))
    assert [tensor.name for tensor in completed.output] == ["add", "sub"]
    assert completed.max_batch_size == 4


def test_outputs_of_a_program_may_be_renamed_and_dims_have_limits(tmp_path):
    count = torch.export.Dim("count", min=1, max=4)
    found = exported(
        tmp_path, AddSub(), torch.ones(2), torch.ones(2), dynamic=({0: count}, {0: count})
    )
    wanted = config(("x", "y"), ("SUM", "DIFF"))
    assert answer(found, wanted, tensors(x=ONES, y=TWOS))["DIFF"].tolist() == [-1, -1, -1]
    with pytest.raises(Exception, match="input 'x' has 5 in dim 0, the model takes 0 to 4"):
        answer(found, wanted, tensors(x=np.ones(5, "f4"), y=np.ones(5, "f4")))
    with pytest.raises(Exception, match="'y' has 2 in dim 0, input 'x' has 3"):
        answer(found, wanted, tensors(x=ONES, y=np.ones(2, np.float32)))


def test_a_buffer_that_is_written_is_refused(tmp_path):
    found = exported(tmp_path, Changes(), torch.ones(3))
    with pytest.raises(Unsupported, match="writes to its buffers or inputs"):
        PytorchBackend().complete(found, ModelConfig("m"))


def results(x):
    return torch.add(x, 1, out=x)


def several(x):
    torch._foreach_add_([x], 1.0)
    return x * 2


def part(x):
    x.chunk(3)[0].add_(1)
    return x * 2


def dropped(x):
    return torch.dropout(x, 0.5, False).add_(1)


@pytest.mark.parametrize("function", [results, several, part, dropped])
def test_a_program_that_writes_to_its_input_is_refused(function, tmp_path):
    class Writing(torch.nn.Module):
        def forward(self, x):
            return function(x)

    found = exported(tmp_path, Writing(), torch.ones(3))
    with pytest.raises(Unsupported, match="writes to its buffers or inputs"):
        PytorchBackend().complete(found, ModelConfig("m"))


def test_compiled_code_has_to_be_allowed(tmp_path):
    found = files(tmp_path, "model.pt2")
    with zipfile.ZipFile(found.file, "w") as archive:
        archive.writestr("model/data/aotinductor/model/model.so", b"\x7fELF")
    with pytest.raises(Unsupported, match="only if parameter inferd_allow_native_code is true"):
        PytorchBackend().complete(found, ModelConfig("m"))
    allowed = ModelConfig("m", parameters={"inferd_allow_native_code": "true"})
    with pytest.raises(InvalidConfig, match="the code checks nothing"):
        PytorchBackend().complete(found, allowed)
    with pytest.raises(BackendFailed, match="PyTorch cannot load it"):
        PytorchBackend().complete(found, config(("x",), ("y",), parameters=allowed.parameters))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler itself
@pytest.mark.timeout(600)  # a C++ compiler runs, and others may have the processors
def test_compiled_code_runs_where_it_is_allowed(tmp_path):
    count = torch.export.Dim("count", min=1, max=9)
    pair = torch.ones(2), torch.ones(2)
    shapes = ({0: count}, {0: count})
    program = torch.export.export(AddSub(), pair, dynamic_shapes=shapes)
    found = files(tmp_path, "model.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=str(found.file))
    allowed = {"inferd_allow_native_code": "true"}
    wanted = config(("x", "y"), ("SUM", "DIFF"), parameters=allowed)
    got = answer(found, wanted, tensors(y=TWOS, x=ONES))
    assert {name: array.tolist() for name, array in got.items()} == {
        "SUM": [3, 3, 3],
        "DIFF": [-1, -1, -1],
    }
    assert answer(found, wanted, tensors(x=ONES, y=TWOS), ("DIFF",)).keys() == {"DIFF"}
    backend = PytorchBackend()
    instance = backend.open(found, wanted, CPU)
    with pytest.raises(Unsupported, match="only if parameter inferd_allow_native_code is true"):
        backend.open(found, config(("x", "y"), ("SUM", "DIFF")), CPU)
    instance.close()


# --- many threads, and what no framework may get ---


def test_threads_share_a_model(tmp_path):
    found, wanted = save(tmp_path, AddSub()), config(("x", "y"), ("SUM", "DIFF"))
    backend = PytorchBackend()
    instance = backend.open(found, backend.complete(found, wanted), CPU)
    wrong = []

    def work(number):
        array = np.full(3, number, np.float32)
        for _ in range(50):
            request = InferRequest("m", inputs=tensors(x=array, y=array))
            [response] = instance.execute([request])
            if response.outputs[0].numpy().tolist() != [2 * number] * 3:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("keep", [0, 1, 30, 0.5, 0.9])
@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_truncated_file_is_refused(tmp_path, name, keep):
    if name == "model.pt":
        found = save(tmp_path, AddSub())
    else:
        found = exported(tmp_path, AddSub(), torch.ones(2), torch.ones(2))
    content = found.file.read_bytes()
    size = int(keep * len(content)) if isinstance(keep, float) else keep
    found.file.write_bytes(content[:size])
    with pytest.raises(InvalidConfig, match="not a zip archive, or not a whole one"):
        PytorchBackend().complete(found, ModelConfig("m"))


def test_a_pickle_is_not_loaded(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return open, (str(marker), "w")

    found = files(tmp_path)
    torch.save(Evil(), found.file)
    with pytest.raises(InvalidConfig, match=r"write the model with torch\.jit\.save"):
        PytorchBackend().complete(found, ModelConfig("m"))
    assert not marker.exists()


def test_a_script_that_writes_files_is_not_loaded(tmp_path):
    marker = tmp_path / "written"
    found = files(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.ScriptModule()
        module.define(
            f'def forward(self, x: Tensor) -> Tensor:\n  torch.save(x, "{marker}")\n  return x\n'
        )
        module.save(str(found.file))
    with pytest.raises(InvalidConfig, match=r"calls torch\.save, which reads or writes files"):
        PytorchBackend().complete(found, config(("x",), ("y",)))
    assert not marker.exists()


def rewritten(file, change):
    """Write the archive `file` anew, each member as change(name, bytes) says."""
    with zipfile.ZipFile(file) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            archive.writestr(name, change(name, content))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"torch.ops.aten.add.Tensor"', b'"torch.os.system"'),
        (b'"name": "x"', b'"name": "x=print(1)"'),
        (b"Symbol('s", b"exec('s"),
    ],
)
def test_a_program_with_foreign_names_is_not_loaded(tmp_path, old, new):
    count = torch.export.Dim("count", min=1, max=9)
    found = exported(
        tmp_path, AddSub(), torch.ones(2), torch.ones(2), dynamic=({0: count}, {0: count})
    )
    rewritten(found.file, lambda name, content: content.replace(old, new))
    with pytest.raises(InvalidConfig, match=r"its graph has a .* that is not known"):
        PytorchBackend().complete(found, ModelConfig("m"))


def test_a_tensor_that_claims_more_than_there_is_is_not_loaded(tmp_path):
    found = save(tmp_path, torch.nn.Linear(4, 4))
    rewritten(found.file, lambda name, content: content[:8] if name.endswith("data/0") else content)
    with pytest.raises(InvalidConfig, match="claims 16 elements, the file has fewer"):
        PytorchBackend().complete(found, config(("x",), ("y",)))
