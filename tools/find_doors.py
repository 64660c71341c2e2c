"""Searches for ONNX models and requests that end the process that runs ONNX Runtime, or fill it.

Every operator of the CPU provider is run with inputs and attributes that nobody would send in good
faith: dims of 0, other ranks, the limits of integers, NaN, empty texts, huge counts. The models
are the onnx package's own tests of each operator, the same with integers, and for the operators of
other domains some that are drawn from their schemas. Each runs in
a child process with a memory limit; what ends it (a signal, a run without end) or takes far more
memory than the request is printed, one line each, as JSON. It takes an hour or so, so that it is
no part of the tests; run it for a new version of ONNX Runtime:

    python tools/find_doors.py [--only REGEX] [--attributes] > doors.jsonl
"""

import argparse
import itertools
import json
import math
import os
import pickle
import re
import resource
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.backend.test.case.node import collect_testcases
from onnxruntime.capi import onnxruntime_pybind11_state as state

MEMORY = 3 << 30
"""The address space of a child, in bytes, beyond what it has after importing."""

BOMB = 256 << 20
"""Memory that no request of this search should take, in bytes."""

CPU_S = 4.0
"""The processor time a run may take, in seconds: they all are tiny."""

SILENCE_S = 90.0
"""How long a child may say nothing, in seconds, as one that waits uses no processor time."""

Feed = dict[str, Any]

GUESSES = 20
"""How many models are guessed for an operator."""

_OTHERS = ("com.microsoft", "ai.onnx.ml")
_ELEMENTS = {
    "float": (onnx.TensorProto.FLOAT, "float32"),
    "double": (onnx.TensorProto.DOUBLE, "float64"),
    "float16": (onnx.TensorProto.FLOAT16, "float16"),
    "int8": (onnx.TensorProto.INT8, "int8"),
    "uint8": (onnx.TensorProto.UINT8, "uint8"),
    "int32": (onnx.TensorProto.INT32, "int32"),
    "int64": (onnx.TensorProto.INT64, "int64"),
    "bool": (onnx.TensorProto.BOOL, "bool"),
    "string": (onnx.TensorProto.STRING, "str"),
}
_ATTRIBUTES: dict[str, list[Any]] = {
    "INT": [1, 2],
    "FLOAT": [1.0, 0.5],
    "STRING": ["a", "NONE"],
    "INTS": [[1, 2], [1]],
    "FLOATS": [[1.0, 2.0], [0.5]],
    "STRINGS": [["a", "b"], ["1"]],
}

_INTEGERS = {onnx.TensorProto.INT32: "int32", onnx.TensorProto.INT64: "int64"}


def collect(folder: Path) -> None:
    """Write all models with their inputs into `folder`, a pickle each."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases()
    for case in cases:
        if "expanded" in case.name or not case.data_sets:
            continue
        names = [one.name for one in case.model.graph.input]
        feed = dict(zip(names, case.data_sets[0][0], strict=False))
        _write(folder, f"onnx.{case.name}", case.model, feed)
        for element, dtype in _INTEGERS.items():
            integers = _with_integers(case.model, feed, element, dtype)
            if integers is not None:
                _write(folder, f"{dtype}.{case.name}", *integers)
    for name, model, feed in _guesses():
        _write(folder, name, model, feed)


def _guesses() -> Iterator[tuple[str, onnx.ModelProto, Feed]]:
    """Yield models of the operators that the onnx package does not test, made from their schemas.

    Shapes and attributes are drawn: many do not run as they are, which is no loss.
    """
    kernels = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain in _OTHERS:
            kernels.setdefault((kernel.domain, kernel.op_name), kernel.type_constraints)
    schemas = {(one.domain, one.name): one for one in state.get_all_operator_schema()}
    random = np.random.default_rng(1)
    for (domain, op), types in sorted(kernels.items()):
        for number in range(GUESSES):
            with suppress(KeyError, ValueError, TypeError):
                model, feed = _guess(schemas[domain, op], types, number, random)
                yield f"{domain}.{op}.{number}", model, feed


def _guess(
    schema: Any, types: dict[str, list[str]], number: int, random: np.random.Generator
) -> tuple[onnx.ModelProto, Feed]:
    count = min(len(schema.inputs), schema.min_input + number % 4)
    shape = [[2, 4], [1, 2, 4], [1, 2, 4, 4], [4], [2, 2, 4, 8]][number % 5]
    feed: Feed = {}
    values = []
    for index, one in enumerate(schema.inputs[: max(count, 1)]):
        names = types.get(one.typeStr) or [one.typeStr]
        element, dtype = _ELEMENTS[names[number % len(names)].removeprefix("tensor(")[:-1]]
        dims = shape if index == 0 or number % 2 else shape[-1 - index % len(shape) :]
        array = random.integers(0, 3, dims)
        feed[f"i{index}"] = (
            array.astype(str).astype(object) if dtype == "str" else array.astype(dtype)
        )
        values.append(helper.make_tensor_value_info(f"i{index}", element, None))
    outputs = [f"o{index}" for index in range(max(1, schema.min_output))]
    node = helper.make_node(schema.name, list(feed), outputs, domain=schema.domain)
    for name, attribute in schema.attributes.items():
        if attribute.required or number % 3 == 0:
            value = _ATTRIBUTES.get(attribute.type.name, [None, None])[number % 2]
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))
    kinds = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", values, kinds)
    opsets = [("", 21), ("ai.onnx.ml", 3), ("com.microsoft", 1)]
    imports = [helper.make_opsetid(*one) for one in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feed


def _with_integers(
    model: onnx.ModelProto, feed: Feed, element: int, dtype: str
) -> tuple[onnx.ModelProto, Feed] | None:
    """Return a model of one operator with integers in place of its FP32 inputs, if it has any."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if len(model.graph.node) > 1:
        return None
    values = [*changed.graph.input, *changed.graph.output]
    tensors = [one.type.tensor_type for one in values if one.type.HasField("tensor_type")]
    floats = [one for one in tensors if one.elem_type == onnx.TensorProto.FLOAT]
    for one in floats:
        one.elem_type = element
    with np.errstate(all="ignore"):
        new = {
            name: one.astype(dtype) if getattr(one, "dtype", None) == np.float32 else one
            for name, one in feed.items()
        }
    return (changed, new) if floats else None


def _write(folder: Path, name: str, model: onnx.ModelProto, feed: Feed) -> None:
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    (folder / name).write_bytes(pickle.dumps((model.SerializeToString(), feed)))


def read_model(file: Path) -> tuple[onnx.ModelProto, Feed]:
    """Return a model without declared shapes, and inputs that it takes."""
    content, feed = pickle.loads(file.read_bytes())
    return onnx.load_from_string(content), feed


def feeds(feed: Feed) -> Iterator[tuple[str, Feed]]:
    """Yield hostile variations of `feed`, with what they are."""
    yield "as it is", feed
    arrays = {name: one for name, one in feed.items() if isinstance(one, np.ndarray)}
    for size in sorted({dim for one in arrays.values() for dim in one.shape if dim}):
        changed = {
            name: np.zeros([0 if dim == size else dim for dim in one.shape], one.dtype)
            for name, one in arrays.items()
            if size in one.shape
        }
        yield f"every dim of {size} is 0", feed | changed
    for name, array in arrays.items():
        for shape in dict.fromkeys(_shapes(array.shape)):
            yield f"{name} has shape {list(shape)}", feed | {name: _resized(array, shape)}
        for words, values in _values(array):
            yield f"{name} {words}", feed | {name: values}
    for (a, one), (b, two) in itertools.permutations(arrays.items(), 2):
        if one.size > 64 or two.size > 64:
            continue
        for left, right in itertools.product(_extremes(one.dtype), _extremes(two.dtype)):
            if len(arrays) > 4 and abs(left) == abs(right) == 1:
                continue
            pair = {a: np.full_like(one, left), b: np.full_like(two, right)}
            yield f"{a} is all {left}, {b} all {right}", feed | pair
            pair = {a: np.full(1, left, one.dtype), b: np.full(1, right, two.dtype)}
            yield f"{a} is [{left}], {b} [{right}]", feed | pair


def _shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for index in range(len(shape)):
        yield (*shape[:index], 0, *shape[index + 1 :])
        yield (*shape[:index], 1, *shape[index + 1 :])
        yield (*shape[:index], shape[index] + 3, *shape[index + 1 :])
    yield (0,) * len(shape)
    yield ()
    yield (0,)
    yield (1,)
    yield (*shape, 1)
    yield (1, *shape)
    yield shape[1:]
    yield shape[:-1]
    yield (0, 0, 0, 0)
    yield (1 << 40, 0)


def _resized(array: Any, shape: tuple[int, ...]) -> Any:
    if not array.size:
        return np.zeros(shape, array.dtype)
    return np.resize(array, shape)


def _extremes(dtype: Any) -> list[Any]:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return sorted({int(limits.min), int(limits.max), 0, 1, -1 if limits.min else 2})
    if dtype.kind == "f":
        return [0.0, math.nan, math.inf, -1.0, 1e30 if dtype.itemsize > 2 else 6e4]
    return []


def _values(array: Any) -> Iterator[tuple[str, Any]]:
    numbers: list[Any]
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        many = [
            0,
            1,
            -1,
            -2,
            2,
            1000,
            10**6,
            10**9,
            2**31 - 1,
            2**31,
            -(2**31),
            2**33,
            2**40,
            2**62,
        ]
        many += [int(limits.min), int(limits.max), int(limits.min) + 1]
        numbers = [one for one in many if limits.min <= one <= limits.max]
    elif array.dtype.kind == "f":
        numbers = [0.0, -0.0, -1.0, 1e-30, 1e6, 1e9, 1e18, 3e38, math.nan, math.inf, -math.inf]
    elif array.dtype.kind in "OU":
        numbers = ["", "a" * 100_000, "\x00", "\udcff", "((a*)*)*b", "é" * 10, " ", "1e999"]
        array = array.astype(object)
    else:
        return
    with np.errstate(all="ignore"):
        for number in dict.fromkeys(numbers):
            yield f"is all {str(number)[:20]!r}", np.full_like(array, number)
            for index in range(min(array.size, 6)) if array.size > 1 else ():
                one = array.copy()
                one.reshape(-1)[index] = number
                yield f"has {str(number)[:20]!r} at {index}", one


def attribute_models(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield `model` with one attribute changed."""
    for place, node in enumerate(model.graph.node):
        try:
            version = next((o.version for o in model.opset_import if o.domain == node.domain), 1)
            known = onnx.defs.get_schema(node.op_type, version, node.domain).attributes
            names = {name: int(one.type.value) for name, one in known.items()}
        except onnx.defs.SchemaError:
            names = {}
        names |= {one.name: one.type for one in node.attribute}
        given = {one.name: one for one in node.attribute}
        for name, kind in names.items():
            for value in _attribute_values(kind, given.get(name)):
                changed = onnx.ModelProto()
                changed.CopyFrom(model)
                target = changed.graph.node[place]
                kept = [one for one in target.attribute if one.name != name]
                del target.attribute[:]
                target.attribute.extend(kept)
                target.attribute.append(helper.make_attribute(name, value, attr_type=kind))
                yield f"{node.op_type}.{name} = {str(value)[:60]}", changed


def _attribute_values(kind: int, given: Any) -> Iterator[Any]:
    proto = onnx.AttributeProto
    ints = [0, -1, 1, 2, 3, 1000, 10**6, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63)]
    floats = [0.0, -1.0, math.nan, math.inf, 1e30]
    if kind == proto.INT:
        yield from ints
    elif kind == proto.FLOAT:
        yield from floats
    elif kind == proto.STRING:
        yield from ("", "x", "((((", "%n%s", "a" * 10_000)
    elif kind in (proto.INTS, proto.FLOATS):
        now = list(given.ints if kind == proto.INTS else given.floats) if given else [1, 1]
        yield []
        yield now + now[-1:]
        yield now[:-1]
        for value in ints if kind == proto.INTS else floats:
            yield [value] * max(1, len(now))
            for index in range(min(4, len(now))):
                yield [*now[:index], value, *now[index + 1 :]]
    elif kind == proto.STRINGS:
        yield []
        yield [""]
        yield ["(", "a"]


def _opened(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def child(folder: Path, first: int, trial: int, only: str, *, with_attributes: bool) -> None:
    """Run the trials from that of model number `first` on, telling each before it runs."""
    onnxruntime.set_default_logger_severity(4)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    files = [one for one in sorted(folder.iterdir()) if re.search(only, one.name)]
    for number in range(first, len(files)):
        for count, (words, run) in enumerate(
            _trials(files[number], with_attributes=with_attributes)
        ):
            if number == first and count < trial:
                continue
            _tell(["try", number, count, files[number].name, words])
            before = resource.getrusage(resource.RUSAGE_SELF)
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            error = ""
            try:
                run()
            except Exception as raised:  # noqa: BLE001  any error is fine: it is no end
                error = str(raised)
            signal.setitimer(signal.ITIMER_PROF, 0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            grown = (after.ru_maxrss - before.ru_maxrss) * 1024
            seconds = after.ru_utime - before.ru_utime
            if words == "as it is" and error:
                _tell(["note", "does not run", error[:300]])
            if re.search("bad_alloc|allocate memory|BFCArena|bad array|length_error", error):
                _tell(["note", "no memory", error[:300]])
            elif grown > BOMB:
                _tell(["note", f"took {grown >> 20} MiB, {seconds:.1f} s", error[:300]])
            elif seconds > 1:
                _tell(["note", f"took {seconds:.1f} s", error[:300]])


def _trials(file: Path, *, with_attributes: bool) -> Iterator[tuple[str, Any]]:
    model, feed = read_model(file)
    if with_attributes:
        for words, changed in attribute_models(model):
            yield words, lambda m=changed: _opened(m).run(None, feed)
        return
    session: list[Any] = []

    def run(values: Feed) -> None:
        if not session:
            session.append(_opened(model))
        session[0].run(None, values)

    for words, values in feeds(feed):
        yield words, lambda v=values: run(v)


def _tell(words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def search(folder: Path, only: str, *, with_attributes: bool) -> None:
    """Run all trials in children, and print what ended them or took too much."""
    first = trial = 0
    total = 0
    while True:
        told: list[Any] = []
        command = [sys.executable, __file__, "--child", str(folder), "--from", f"{first},{trial}"]
        command += ["--only", only]
        command += ["--attributes"] * with_attributes
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
            assert one.stdout is not None
            rest = b""
            while True:
                if not select.select([one.stdout], [], [], SILENCE_S)[0]:
                    one.kill()
                content = os.read(one.stdout.fileno(), 1 << 16)
                if not content:
                    break
                *lines, rest = (rest + content).split(b"\n")
                for line in lines:
                    words = json.loads(line)
                    if words[0] == "try":
                        told = words
                        total += 1
                    else:
                        _tell(
                            {
                                "what": words[1],
                                "model": told[3] if told else "",
                                "trial": told[4] if told else "",
                                "error": words[2],
                            }
                        )
            code = one.wait()
        if code == 0 or not told:
            break
        what = "never ends" if code == -signal.SIGPROF else f"ends with {_ending(code)}"
        _tell({"what": what, "model": told[3], "trial": told[4]})
        first, trial = told[1], told[2] + 1
    sys.stderr.write(f"{total} trials, last exit {code}\n")


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def main() -> None:
    """Search, or be a child of the search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for names of models")
    parser.add_argument("--attributes", action="store_true", help="vary attributes, not inputs")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="first", default="0,0", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        first, trial = map(int, options.first.split(","))
        child(options.child, first, trial, options.only, with_attributes=options.attributes)
        return
    with TemporaryDirectory() as folder:
        collect(Path(folder))
        search(Path(folder), options.only, with_attributes=options.attributes)


if __name__ == "__main__":
    main()
