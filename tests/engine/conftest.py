"""Model repositories in temporary folders, and a backend of another package that tests steer."""

import importlib
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.core.request import InferRequest
from inferd.engine.loading.lookup import ENTRY_POINTS
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

# Test folders are no packages: this is how the tests here find what they share.
sys.path.insert(0, str(Path(__file__).parent))

_THEIRS = """
import os
import threading
from inferd.config.model import ModelInput, ModelOutput
from inferd.core.request import InferResponse
from inferd.core.traits import InstanceTraits, Traits
from inferd.tensor.dtype import DataType
from dataclasses import replace

log = []            # what happened: "backend", ("open", name), ("close", name)
failures = []       # raised by the next opens, None for none
threads = []        # where models were opened
cores = []          # and on which processors
on_loop = []        # whether each execution ran on the main thread
opening = threading.Event()
may_open = threading.Event()
may_open.set()
executing = threading.Event()
may_execute = threading.Event()
may_execute.set()
closed = threading.Event()
pairs = None        # a barrier that opens pass together
running = peak = 0
lock = threading.Lock()


class Instance:
    def __init__(self, name, version):
        self.name = name
        self.version = version

    def execute(self, requests):
        on_loop.append(threading.current_thread() is threading.main_thread())
        executing.set()
        assert may_execute.wait(30)
        return [InferResponse(r.model, str(self.version), "", list(r.inputs)) for r in requests]

    def close(self):
        log.append(("close", self.name))
        closed.set()


class Theirs:
    traits = Traits(is_bounded=True, is_concurrent=True)

    def __init__(self):
        log.append("backend")

    def complete(self, files, config):
        if config.input:
            return config
        return replace(
            config,
            input=(ModelInput("A", DataType.FP32, (1,)),),
            output=(ModelOutput("A", DataType.FP32, (1,)),),
        )

    def open(self, files, config, placement):
        global running, peak
        threads.append(threading.current_thread())
        opening.set()
        assert may_open.wait(30)
        with lock:
            running += 1
            peak = max(peak, running)
        if pairs is not None:
            pairs.wait(30)
        with lock:
            running -= 1
        if failures and (failure := failures.pop(0)) is not None:
            raise failure
        log.append(("open", placement.name))
        cores.append(os.sched_getaffinity(0))
        instance = Instance(placement.name, files.version)
        if "unbounded" in config.parameters:
            instance.traits = InstanceTraits(is_bounded=False)
        return instance


class Unbounded(Theirs):
    traits = Traits(is_concurrent=True)


class Single(Theirs):
    traits = Traits(is_bounded=True)
"""
_ENTRIES = "theirs = their_engine_backend:Theirs\n" + "".join(
    f"{name} = their_engine_backend:{name.title()}\n" for name in ("unbounded", "single")
)


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """The module of an installed package that adds backends theirs, unbounded and single."""
    site = tmp_path / "site"
    record = site / "their_engine_backend-1.0.dist-info"
    record.mkdir(parents=True)
    (site / "their_engine_backend.py").write_text(_THEIRS)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{_ENTRIES}")
    monkeypatch.syspath_prepend(site)
    yield importlib.import_module("their_engine_backend")
    sys.modules.pop("their_engine_backend", None)
    importlib.invalidate_caches()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where sent files are put; a test leaves nothing there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def repository(tmp_path):
    """repository(versions, name=config text) writes models with those version folders."""
    root = tmp_path / "models"
    root.mkdir()

    def write(*versions, **configs):
        for name, text in configs.items():
            for version in versions or (1,):
                (root / name / str(version)).mkdir(parents=True)
            (root / name / "config.pbtxt").write_text(text)
        return root

    return write


@pytest.fixture
def onnx_sum(tmp_path):
    """onnx_sum(name) writes a batching ONNX model Y = A + B, FP32 [n, 2], without a config."""

    def write(name="sum"):
        values = [
            helper.make_tensor_value_info(one, TensorProto.FLOAT, ["n", 2])
            for one in ("A", "B", "Y")
        ]
        graph = helper.make_graph(
            [helper.make_node("Add", ["A", "B"], ["Y"])], "graph", values[:2], values[2:]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return tmp_path / "models"

    return write


@pytest.fixture
def ask():
    """ask(model, version, NAME=values) is a request with FP32 inputs."""

    def make(model, version="", **inputs):
        tensors = [
            Tensor.from_numpy(name, np.array(values, np.float32), DataType.FP32)
            for name, values in inputs.items()
        ]
        return InferRequest(model, version, "an id", tensors)

    return make
