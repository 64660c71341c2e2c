"""Shared memory as tritonclient uses it, over HTTP and gRPC, against a server process."""

import base64
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

KEYS = f"/test_inferd_client_{os.getpid()}_"
PLACES = {"http": tritonclient.http, "grpc": tritonclient.grpc}


class Client:
    """One protocol's client, and its classes of inputs and outputs."""

    def __init__(self, module, address):
        self.module = module
        self.address = address
        self.triton = module.InferenceServerClient(address)

    def input(self, name, array, datatype, region, offset=0, size=None):
        made = self.module.InferInput(name, list(array.shape), datatype)
        made.set_shared_memory(region, array.nbytes if size is None else size, offset)
        return made

    def sent(self, name, array, datatype):
        made = self.module.InferInput(name, list(array.shape), datatype)
        made.set_data_from_numpy(array)
        return made

    def output(self, name, region=None, size=0, offset=0):
        made = self.module.InferRequestedOutput(name)
        if region is not None:
            made.set_shared_memory(region, size, offset)
        return made

    def regions(self, name=""):
        told = self.triton.get_system_shared_memory_status(name)
        names = (one["name"] for one in told) if isinstance(told, list) else told.regions
        return sorted(names)


@pytest.fixture(params=PLACES)
def client(request, server):
    made = Client(PLACES[request.param], getattr(server, request.param))
    yield made
    made.triton.unregister_system_shared_memory()
    made.triton.close()


@pytest.fixture
def region(client):
    """region(name, size) makes a region with tritonclient's own helper, registered; its handle."""
    handles = []

    def make(name, size):
        key = f"{KEYS}{name}"
        handles.append(shm.create_shared_memory_region(name, key, size, create_only=True))
        client.triton.register_system_shared_memory(name, key, size)
        return handles[-1]

    yield make
    for handle in handles:
        shm.destroy_shared_memory_region(handle)
    assert not list(Path("/dev/shm").glob(f"{KEYS[1:]}*"))


def test_inputs_are_read_and_outputs_written_in_shared_memory(client, region):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
    given, taken = region("in", 128), region("out", 128)
    shm.set_shared_memory_region(given, [a, b])
    inputs = [
        client.input("INPUT0", a, "INT32", "in"),
        client.input("INPUT1", b, "INT32", "in", 64),
    ]
    outputs = [client.output("OUTPUT0", "out", 64), client.output("OUTPUT1", "out", 64, 64)]
    for _ in range(20):  # in threads first, then on the event loop
        result = client.triton.infer("add_sub", inputs, outputs=outputs)
        assert result.get_output("OUTPUT0") is not None
        total = shm.get_contents_as_numpy(taken, np.int32, [1, 16])
        difference = shm.get_contents_as_numpy(taken, np.int32, [1, 16], 64)
        assert np.array_equal(total, a + b)
        assert np.array_equal(difference, a - b)
        total[:] = difference[:] = 0
    del total, difference


def test_shared_and_sent_tensors_go_together(client, region):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
    both = region("both", 128)
    shm.set_shared_memory_region(both, [a])
    inputs = [client.input("INPUT0", a, "INT32", "both"), client.sent("INPUT1", b, "INT32")]
    outputs = [client.output("OUTPUT0"), client.output("OUTPUT1", "both", 64, 64)]
    result = client.triton.infer("add_sub", inputs, outputs=outputs)
    assert np.array_equal(result.as_numpy("OUTPUT0"), a + b)
    written = shm.get_contents_as_numpy(both, np.int32, [1, 16], 64)
    assert np.array_equal(written, a - b)
    del written
    result = client.triton.infer("add_sub", inputs)
    assert np.array_equal(result.as_numpy("OUTPUT1"), a - b)


def test_outputs_may_be_written_over_the_inputs(client, region):
    a, b = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
    both = region("over", 128)
    inputs = [
        client.input("INPUT0", a, "INT32", "over"),
        client.input("INPUT1", b, "INT32", "over", 64),
    ]
    outputs = [client.output("OUTPUT0", "over", 64), client.output("OUTPUT1", "over", 64, 64)]
    for _ in range(20):
        shm.set_shared_memory_region(both, [a, b])
        client.triton.infer("add_sub", inputs, outputs=outputs)
        got = shm.get_contents_as_numpy(both, np.int32, [2, 16]).copy()
        assert np.array_equal(got, np.concatenate([a + b, a - b]))


def test_every_datatype_comes_back_as_it_was(client, region, sample, same):
    array = sample.array
    data = serialize_byte_tensor(array).item() if sample.datatype == "BYTES" else array.tobytes()
    both = region("both", 2 * 4096)
    both._mpsm_handle.buf[: len(data)] = data
    given = client.input("INPUT0", array, sample.datatype, "both", 0, len(data))
    wanted = client.output("OUTPUT0", "both", 4096, 4096)
    client.triton.infer(f"flat_{sample.datatype}", [given], outputs=[wanted])
    assert bytes(both._mpsm_handle.buf[4096 : 4096 + len(data)]) == data
    assert bytes(both._mpsm_handle.buf[4096 + len(data) :]) == bytes(4096 - len(data))


def test_onnx_models_of_every_kind_write_to_their_places(client, region):
    both = region("both", 4096)
    halves = np.array([[1, 2, 3]], np.float16)
    shm.set_shared_memory_region(both, [halves])
    given = client.input("INPUT0", halves, "FP16", "both")
    client.triton.infer("onnx_FP16", [given], outputs=[client.output("OUTPUT0", "both", 6, 64)])
    doubled = shm.get_contents_as_numpy(both, np.float16, [1, 3], 64)
    assert doubled.tolist() == [[2, 4, 6]]
    del doubled
    floats = np.array([[1, 2, 3]], np.float32)
    shm.set_shared_memory_region(both, [floats])
    given = client.input("INPUT0", floats, "FP32", "both")
    client.triton.infer("onnx_BF16", [given], outputs=[client.output("OUTPUT0", "both", 6, 64)])
    assert bytes(both._mpsm_handle.buf[64:70]) == b"\x80\x3f\x00\x40\x40\x40"
    texts = serialize_byte_tensor(np.array([["a", "bc", ""]], np.object_)).item()
    both._mpsm_handle.buf[: len(texts)] = texts
    given = client.input("INPUT0", np.empty((1, 3)), "BYTES", "both", 0, len(texts))
    client.triton.infer("onnx_BYTES", [given], outputs=[client.output("OUTPUT0", "both", 99, 64)])
    assert bytes(both._mpsm_handle.buf[64 : 64 + len(texts)]) == texts


def test_regions_are_told_by_name_and_forgotten(client, region):
    region("one", 64)
    region("two", 64)
    assert client.regions() == ["one", "two"]
    assert client.regions("two") == ["two"]
    client.triton.unregister_system_shared_memory("one")
    client.triton.unregister_system_shared_memory("nobody")
    assert client.regions() == ["two"]
    with pytest.raises(
        InferenceServerException, match="Unable to find system shared memory region: 'one'"
    ):
        client.regions("one")
    client.triton.unregister_system_shared_memory()
    assert client.regions() == []


@pytest.mark.parametrize(
    ("key", "size", "offset", "text"),
    [
        ("{KEYS}nobody", 64, 0, "Unable to open"),
        ("/../etc/passwd", 64, 0, "no key"),
        ("/sub/object", 64, 0, "no key"),
        ("/inferd_worker", 64, 0, "reserved"),
        ("/triton_python_backend_shm_region_7", 64, 0, "reserved"),
        ("{KEYS}one", 65, 0, "has 64 bytes"),
        ("{KEYS}one", 64, 1, "has 64 bytes"),
        ("{KEYS}one", 2**62, 2**62, "has 64 bytes"),
        ("{KEYS}one", 0, 0, "byte_size"),
    ],
)
def test_what_cannot_be_registered_is_told_why(client, region, key, size, offset, text):
    region("one", 64)
    with pytest.raises(InferenceServerException, match=text) as caught:
        client.triton.register_system_shared_memory("new", key.format(KEYS=KEYS), size, offset)
    assert "/dev/shm" not in str(caught.value)
    with pytest.raises(InferenceServerException, match="'one' already"):
        client.triton.register_system_shared_memory("one", f"{KEYS}one", 64)
    assert client.regions() == ["one"]


def test_a_region_beyond_its_object_is_the_clients_fault(client, region):
    region("one", 64)
    with pytest.raises(InferenceServerException) as told:
        client.triton.register_system_shared_memory("new", f"{KEYS}one", 65)
    statuses = {tritonclient.http: "400", tritonclient.grpc: "StatusCode.INVALID_ARGUMENT"}
    assert told.value.status() == statuses[client.module]


@pytest.mark.parametrize("client", ["grpc"], indirect=True)
def test_a_region_without_a_name_is_internal_over_grpc(client, region):
    region("one", 64)
    with pytest.raises(InferenceServerException, match="needs a name") as told:
        client.triton.register_system_shared_memory("", f"{KEYS}one", 8)
    assert told.value.status() == "StatusCode.INTERNAL"


def test_a_cuda_region_needs_a_gpu(client):
    register = client.triton.register_cuda_shared_memory
    handle = base64.b64encode(bytes(64)).decode()
    with pytest.raises(
        InferenceServerException, match=r"GPUs not supported|the GPU's driver answers"
    ):
        register("g", handle, 0, 64)
    status = client.triton.get_cuda_shared_memory_status()
    assert not (status if isinstance(status, list) else status.regions)
    client.triton.unregister_cuda_shared_memory()


def test_the_server_says_that_it_has_the_extensions(client):
    metadata = client.triton.get_server_metadata()
    named = metadata["extensions"] if isinstance(metadata, dict) else metadata.extensions
    assert {"system_shared_memory", "cuda_shared_memory"} <= set(named)


# --- memory that goes away ---


def infer_once(client, model, array, region):
    """Infer through `region` with a client of one's own; return the error's text, or ""."""
    with client.module.InferenceServerClient(client.address) as triton:
        given = client.input("INPUT0", array, "FP32", region)
        place = client.output("OUTPUT0", region, array.nbytes, 2 * 4096)
        try:
            triton.infer(model, [given], outputs=[place])
        except InferenceServerException as error:
            return str(error)
    return ""


@pytest.fixture
def two_regions(client, shared):
    """Regions "bad" and "good", 4 pages each; their objects."""
    objects = {name: shared(4 * 4096) for name in ("bad", "good")}
    for name, each in objects.items():
        client.triton.register_system_shared_memory(name, each.key, 4 * 4096)
    return objects


@pytest.mark.slow
def test_a_region_that_shrinks_while_its_request_runs_costs_that_request_alone(client, two_regions):
    array = np.ones(1, np.float32)
    with ThreadPoolExecutor() as pool:
        waiting = {
            name: pool.submit(infer_once, client, "slow", array, name) for name in two_regions
        }
        two_regions["bad"].resize(0)
        answers = {name: each.result() for name, each in waiting.items()}
    assert answers["good"] == ""
    assert "'bad'" in answers["bad"] and "shr" in answers["bad"]
    assert client.triton.is_server_live()


def test_a_region_that_was_removed_costs_its_request_alone(client, two_regions):
    array = np.ones((1, 1), np.float32)
    two_regions["bad"].remove()
    assert "'bad' has been removed" in infer_once(client, "flat_FP32", array, "bad")
    assert infer_once(client, "flat_FP32", array, "good") == ""
    assert client.triton.is_server_live()


@pytest.mark.slow
def test_no_moment_to_shrink_ends_the_server(client, two_regions):
    """An object shrinks and grows as fast as it can, and is registered anew when it was lost."""
    array = np.ones((1, 512), np.float32)
    stop = threading.Event()
    bad = two_regions["bad"]

    def shake():
        while not stop.is_set():
            bad.resize(0)
            bad.resize(4 * 4096)

    shaking = threading.Thread(target=shake)
    shaking.start()
    try:
        outcomes = set()
        for _ in range(300):
            text = infer_once(client, "flat_FP32", array, "bad")
            outcomes.add(text.partition("while")[0])
            assert infer_once(client, "flat_FP32", array, "good") == ""
            if "unregister the region" in text:
                client.triton.unregister_system_shared_memory("bad")
                register_at_last(client, bad)
    finally:
        stop.set()
        shaking.join()
    assert any("shrunk" in text for text in outcomes)
    assert client.triton.is_server_live()


def register_at_last(client, given):
    """Register, though the object is too small most of the time."""
    while client.regions() == ["good"]:
        with suppress(InferenceServerException):
            client.triton.register_system_shared_memory("bad", given.key, 4 * 4096)


# --- who may ---


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ((), True),
        (("--allow-client-shm=false",), False),
        (("--http-address=0.0.0.0",), False),
        (("--http-address=0.0.0.0", "--allow-client-shm=true"), True),
    ],
)
@pytest.mark.slow
def test_who_may_register_is_said_by_the_option_or_by_the_addresses(
    start, shared, arguments, is_allowed
):
    server = start(*arguments)
    given = shared()
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as triton:
        if is_allowed:
            triton.register_system_shared_memory("r", given.key, 64)
        else:
            with pytest.raises(InferenceServerException, match="--allow-client-shm=true") as caught:
                triton.register_system_shared_memory("r", given.key, 64)
            assert caught.value.status() == "501"
        told = [one["name"] for one in triton.get_system_shared_memory_status()]
        assert told == ["r"] * is_allowed
