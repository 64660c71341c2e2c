"""Texts of errors that programs written for Triton compare, its printed examples among them."""

import http.client
import json
import os
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from patience import wait_until
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

INPUT0 = {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}
OUTPUT0 = INPUT0 | {"name": "OUTPUT0"}


MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(params=MODULES)
def client(request, explicit_server):
    """A client of either protocol, and in `tensors` what its requests are made of."""
    module = MODULES[request.param]
    with module.InferenceServerClient(getattr(explicit_server, request.param)) as client:
        client.tensors = module
        yield client


@pytest.fixture
def loaded(client, write_identity):
    """The name of a model that serves."""
    write_identity("compared")
    client.load_model("compared")
    return "compared"


def text_of(call):
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.message()


def refusal(stub, request):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request)
    return caught.value.details()


def infer(client, model, version="", shape=(2,), name="INPUT0", datatype=np.float32, **fields):
    tensor = filled(client, shape, name, datatype)
    return client.infer(model, [tensor], model_version=version, **fields)


def filled(client, shape=(2,), name="INPUT0", datatype=np.float32):
    tensor = client.tensors.InferInput(name, list(shape), np_to_triton_dtype(datatype))
    tensor.set_data_from_numpy(np.zeros(shape, datatype))
    return tensor


def load(client, model, **config):
    """Load an identity model of that name, with inputs [2] of FP32, and return the name."""
    usual = {"backend": "identity", "input": [INPUT0], "output": [OUTPUT0]}
    files = {"file:1/none": b""}  # then it need not be in the repository
    client.load_model(model, config=json.dumps(usual | config), files=files)
    return model


def test_a_model_or_version_that_is_not_there_is_unknown(client, loaded):
    for call in (client.get_model_metadata, client.get_model_config):
        assert text_of(lambda call=call: call("nobody")).startswith("Request for unknown model")
    unknown = text_of(lambda: infer(client, "nobody"))
    assert unknown == "Request for unknown model: 'nobody' is not found on this server"
    told = text_of(lambda: infer(client, loaded, "9"))
    assert told == "Request for unknown model: 'compared' version 9 is not found, known versions: 1"


def test_a_model_that_was_unloaded_is_unknown(client, loaded):
    told = "Request for unknown model: 'compared' has no available versions: unloaded"
    client.unload_model(loaded)
    wait_until(lambda: text_of(lambda: client.get_model_metadata(loaded)) == told)


def test_a_version_that_was_unloaded_while_another_serves_is_unknown(
    client, explicit_server, write_identity
):
    for policy in ("all { }", "specific { versions: 2 }"):
        write_identity("versions", "1", f"version_policy {{ {policy} }}")
        (explicit_server.root / "versions" / "2").mkdir(exist_ok=True)
        client.load_model("versions")
    told = text_of(lambda: infer(client, "versions", "1"))
    assert told.startswith("Request for unknown model: 'versions' version 1 is not at ready state")


def test_a_version_that_is_no_number_is_told_as_it_was_sent(client, loaded):
    told = text_of(lambda: infer(client, loaded, "newest"))
    assert told.startswith("failed to get model version from specified version string 'newest': ")


def test_a_configuration_that_cannot_be_read_failed_to_load(client, loaded):
    for config in ('"max_batch_size": 16', '{"max_batch_size": "many"}', '{"max_batches": 1}'):
        told = text_of(lambda config=config: client.load_model(loaded, config=config))
        start = "failed to load 'compared', failed to poll from model repository: "
        assert told.startswith(f"{start}config:")
    assert client.is_model_ready(loaded)


def test_what_is_not_in_the_repository_cannot_be_polled(client):
    told = text_of(lambda: client.load_model("nobody"))
    assert told == (
        "failed to load 'nobody', failed to poll from model repository: there is no such model in "
        "it"
    )
    told = text_of(lambda: client.load_model("nobody", files={"file:1/none": b""}))
    assert told.startswith("failed to load 'nobody', failed to poll from model repository: ")
    told = text_of(lambda: client.load_model("a\\b"))
    assert told.startswith("model name must not contain path traversal characters: 'a\\b' ")


def test_a_version_that_fails_to_load_is_unavailable(client):
    told = text_of(lambda: load(client, "failing", output=[]))
    assert told.startswith("load failed for model 'failing': version 1 is at UNAVAILABLE state: ")


@pytest.mark.parametrize("protocol", MODULES)
def test_where_clients_do_not_control_the_models(protocol, server):
    with MODULES[protocol].InferenceServerClient(getattr(server, protocol)) as client:
        for call in (client.load_model, client.unload_model):
            told = text_of(lambda call=call: call("add_sub"))
            assert told.startswith(
                "explicit model load / unload is not allowed if polling is enabled "
            )


def test_a_load_over_grpc_with_parameters_that_are_not_known_or_of_another_type(explicit_server):
    def refused(**parameters):
        request = service_pb2.RepositoryModelLoadRequest(model_name="m")
        for key, value in parameters.items():
            request.parameters[key].int64_param = value
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryModelLoad(request)
        return caught.value.details()

    with grpc.insecure_channel(explicit_server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert refused(zz=1).startswith("unrecognized load parameter 'zz'")
        assert refused(config=1) == (
            "invalid value type for load parameter 'config', expected string_param: "
            "it is int64_param"
        )
        unload = service_pb2.RepositoryModelUnloadRequest(model_name="m")
        unload.parameters["unload_dependents"].int64_param = 1
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryModelUnload(unload)
        assert caught.value.details().startswith(
            "invalid value type for 'unload_dependents' parameter, expected bool_param: "
        )
        index = service_pb2.RepositoryIndexRequest(repository_name="other")
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryIndex(index)
        assert caught.value.details().startswith("'repository_name' specification is not supported")


@pytest.mark.parametrize("path", ["../out", "A" * 256])
def test_a_file_for_a_path_that_cannot_be_is_told_by_it(client, loaded, path):
    told = text_of(
        lambda: client.load_model(loaded, config="{}", files={f"file:{path}": b"content"})
    )
    assert told.startswith("Invalid file path: 'file:")


# --- sequences ---


@pytest.fixture
def sequences(client):
    """The name of a model of sequences."""
    return load(client, "sequences", max_batch_size=8, sequence_batching={})


def test_a_request_that_belongs_to_no_sequence(client, sequences):
    told = text_of(lambda: infer(client, sequences, shape=[1, 2]))
    assert told.startswith(
        "inference request to model 'sequences' must specify a non-zero or non-empty correlation ID"
    )
    told = text_of(lambda: infer(client, sequences, shape=[1, 2], sequence_id=5))
    assert told.startswith(
        "inference request for sequence 5 to model 'sequences' must specify the START flag on the "
        "first request of the sequence"
    )
    told = text_of(
        lambda: infer(client, sequences, shape=[2, 2], sequence_id=5, sequence_start=True)
    )
    assert told == (
        "inference request to model 'sequences' must specify batch-size 1 due to requirements of "
        "sequence batcher, it has batch size 2"
    )


# --- shared memory ---


@pytest.fixture
def region(client):
    """The key of a shared memory object of 64 bytes, registered as "region"."""
    name = f"test_inferd_texts_{os.getpid()}"
    path = Path("/dev/shm", name)
    path.write_bytes(bytes(64))
    client.register_system_shared_memory("region", f"/{name}", 64)
    yield f"/{name}"
    client.unregister_system_shared_memory()
    path.unlink()


def infer_in_place(client, model, region="region", size=8, offset=0, room=8):
    """Infer with input and output in shared memory."""
    tensor = client.tensors.InferInput("INPUT0", [2], "FP32")
    tensor.set_shared_memory(region, size, offset)
    output = client.tensors.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("region", room, 32)
    return client.infer(model, [tensor], outputs=[output])


def test_a_region_that_is_not_known(client, region):
    told = text_of(lambda: client.get_system_shared_memory_status("nobody"))
    assert told == "Unable to find system shared memory region: 'nobody' is not registered"
    told = text_of(lambda: client.get_cuda_shared_memory_status("region"))
    assert told == "Unable to find cuda shared memory region: 'region' is not registered"
    model = load(client, "placed")
    told = text_of(lambda: infer_in_place(client, model, "nobody"))
    assert told == (
        "Unable to find shared memory region: 'nobody' is not registered with this server"
    )


def test_a_region_that_cannot_be_registered(client, region):
    told = text_of(lambda: client.register_system_shared_memory("region", region, 64))
    assert told == "shared memory region 'region' already in manager, unregister it first"
    told = text_of(lambda: client.register_system_shared_memory("other", "/test_inferd_no", 64))
    assert told.startswith("Unable to open shared memory region: '/test_inferd_no' ")
    told = text_of(lambda: client.register_system_shared_memory("other", region, 64, offset=1))
    assert told == (
        f"Invalid shared memory region: '{region}' has 64 bytes, offset 1 and byte_size 64 "
        f"ask for 65"
    )


def test_a_place_that_does_not_fit(client, region):
    model = load(client, "placed")
    told = text_of(lambda: infer_in_place(client, model, offset=60))
    assert told == (
        "Invalid offset + byte size for shared memory region: 'region' has 64 bytes, bytes 60 to "
        "68 are not inside"
    )
    told = text_of(lambda: infer_in_place(client, model, offset=65))
    assert told == (
        "Invalid offset for shared memory region: 'region' has 64 bytes, bytes 65 to 73 are not "
        "inside"
    )
    told = text_of(lambda: infer_in_place(client, model, size=4))
    assert told.startswith(
        "input byte size mismatch for input 'INPUT0' for model 'placed'. Expected 8, got 4 bytes"
    )
    told = text_of(lambda: infer_in_place(client, model, room=4))
    assert told == (
        "shared memory size specified with the request for output 'OUTPUT0' (4 bytes) should be "
        "at least 8 bytes to hold the results"
    )


def test_a_registration_over_rest_that_lacks_something(explicit_server):
    def register(path, body):
        connection = http.client.HTTPConnection(explicit_server.http)
        connection.request("POST", f"/v2/{path}/register", json.dumps(body))
        answer = json.load(connection.getresponse())
        connection.close()
        return answer["error"]

    for field in ("key", "byte_size"):
        body = {"key": "/test_inferd_no", "byte_size": 64}
        del body[field]
        told = register("systemsharedmemory/region/other", body)
        assert told == f"Shared memory register request has no '{field}' field"
    for kind in ("system", "cuda"):
        told = register(f"{kind}sharedmemory", {})
        assert told.startswith(
            f"'region name' is necessary to register {kind} shared memory region"
        )
    body = {"raw_handle": {"b64": "?"}, "device_id": 0, "byte_size": 64}
    told = register("cudasharedmemory/region/other", body)
    assert told.startswith("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")


# --- what does not fit the model ---


def test_inputs_of_another_name_number_or_datatype(client):
    model = load(client, "fitted")
    assert text_of(lambda: infer(client, model, name="OTHER")) == (
        "unexpected inference input 'OTHER' for model 'fitted'. Got input(s) ['OTHER'], but "
        "missing required input(s) ['INPUT0']. Please provide all required input(s). It takes "
        "'INPUT0'"
    )
    assert text_of(lambda: client.infer(model, [])) == (
        "expected 1 inputs but got 0 inputs for model 'fitted'. Got input(s) [], but missing "
        "required input(s) ['INPUT0']. Please provide all required input(s). It takes 'INPUT0'"
    )
    assert text_of(lambda: infer(client, model, datatype=np.int32)) == (
        "inference input 'INPUT0' data-type is 'INT32', but model 'fitted' expects 'FP32'"
    )
    twice = [filled(client), filled(client)]
    assert text_of(lambda: client.infer(model, twice)).startswith(
        "input 'INPUT0' already exists in request"
    )


def test_a_number_of_inputs_of_which_some_are_optional(client):
    inputs = [INPUT0, INPUT0 | {"name": "INPUT1", "optional": True}]
    outputs = [OUTPUT0, OUTPUT0 | {"name": "OUTPUT1"}]
    model = load(client, "optional", input=inputs, output=outputs)
    assert text_of(lambda: client.infer(model, [])).startswith(
        "expected number of inputs between 1 and 2 but got 0 inputs for model 'optional'. "
    )


def test_shapes_and_batch_sizes_that_do_not_fit(client):
    inputs = [INPUT0, INPUT0 | {"name": "INPUT1"}]
    outputs = [OUTPUT0, OUTPUT0 | {"name": "OUTPUT1"}]
    model = load(client, "batched", max_batch_size=8, input=inputs, output=outputs)

    def told(*shapes):
        tensors = [filled(client, shape, f"INPUT{index}") for index, shape in enumerate(shapes)]
        return text_of(lambda: client.infer(model, tensors))

    assert told([1, 2], [1, 3]) == (
        "unexpected shape for input 'INPUT1' for model 'batched'. Expected [-1,2], got [1,3]"
    )
    assert told([1, 2], [2, 2]) == (
        "input 'INPUT1' batch size does not match other inputs for 'batched': it is 2, that of "
        "another is 1"
    )
    assert told([9, 2], [9, 2]) == (
        "inference request batch-size must be <= 8 for 'batched', that of input 'INPUT0' is 9"
    )


def test_an_output_that_the_model_does_not_give(client):
    output = client.tensors.InferRequestedOutput("OTHER")
    assert text_of(lambda: infer(client, load(client, "fitted"), outputs=[output])) == (
        "unexpected inference output 'OTHER' for model 'fitted', it gives 'OUTPUT0'"
    )


# --- the data ---


def test_data_of_another_size_over_grpc(explicit_server, client):
    model = load(client, "sized")

    def told(*raw, datatype="FP32", shape=(2,), **contents):
        request = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=raw)
        tensor = request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
        for field, values in contents.items():
            getattr(tensor.contents, field).extend(values)
        return refusal(stub, request)

    with grpc.insecure_channel(explicit_server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        size = "input byte size mismatch for input 'INPUT0' for model 'sized'. Expected 8, got 4"
        assert told(bytes(4)).startswith(f"{size} bytes of raw contents")
        assert told(fp32_contents=[1]).startswith(f"{size}: contents hold 1 elements")
        assert told().startswith(
            "unable to find data for input tensor 'INPUT0' for model 'sized' in request"
        )
        assert told(bytes(8), fp32_contents=[1, 2]) == (
            "contents field must not be specified when using raw_input_contents for 'INPUT0' for "
            "model 'sized'"
        )
        assert told(int_contents=[1, 2]).startswith(
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'sized' of type "
            "'INT32', expected datatype 'FP32'"
        )
        assert told(int_contents=[1, 2], fp32_contents=[1, 2]).startswith(
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'sized', binary "
            "data was already supplied"
        )
        assert told(bytes(8), datatype="FLOAT").startswith("invalid datatype for input INPUT0: ")
        assert told(bytes(8), shape=[-1]).startswith(
            "All input dimensions should be specified for input 'INPUT0' for model 'sized', got "
            "[-1]"
        )
        text = {"datatype": "BYTES", "shape": [1]}
        assert told(b"\xff\0\0\0ab", **text) == (
            "incomplete string data for inference input 'INPUT0', expecting string of length 255 "
            "but only 2 bytes available for element 0 for model 'sized'"
        )
        assert told(b"\1\0\0\0a\1\0", **text).startswith("incomplete string length indicator for ")
        where = "for inference input 'INPUT0' for model 'sized'"
        assert told(bytes(8), **text).startswith(
            f"unexpected number of string elements 2 {where}, expecting 1"
        )
        assert told(b"", **text).startswith(f"expected 1 string elements {where}, got 0")
        assert told(**text, bytes_contents=[b"a"] * 2).startswith(
            f"unexpected number of string elements 2 {where}, expecting 1"
        )


def test_data_of_another_size_over_rest(explicit_server, client):
    model = load(client, "sized")

    def told(body, blob=b"", header=None):
        head = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = str(len(head)) if header is None else header
        connection = http.client.HTTPConnection(explicit_server.http)
        headers = {"Inference-Header-Content-Length": size}
        connection.request("POST", f"/v2/models/{model}/infer", head + blob, headers)
        answer = json.load(connection.getresponse())
        connection.close()
        return answer["error"]

    def of(size=None, datatype="FP32", **more):
        parameters = {} if size is None else {"binary_data_size": size}
        tensor = {"name": "INPUT0", "datatype": datatype, "shape": [2], "parameters": parameters}
        return {"inputs": [tensor | more]}

    assert told(of(8), bytes(4)).startswith(
        "unexpected size for input 'INPUT0', expecting 4 additional bytes for model 'sized'"
    )
    assert told(of(8), bytes(9)).startswith("unexpected additional input data for model 'sized'")
    assert told(of(4), bytes(4)).startswith(
        "input byte size mismatch for input 'INPUT0' for model 'sized'. Expected 8, got 4 bytes of "
        "binary data"
    )
    sources = "Input must set only one of the following fields: 'data', 'binary_data_size' in "
    assert told(of()).startswith(sources)
    assert told(of(8, data=[1, 2]), bytes(8)).startswith(sources)
    assert told(of(data=[1])).startswith(
        "Unable to parse 'data': Shape does not match true shape of 'data' field"
    )
    assert told(of(datatype="FLOAT", data=[1, 2])).startswith("invalid datatype for input INPUT0")
    assert told(b"{").startswith("failed to parse the request JSON buffer: ")
    for header in ("-1", "99"):
        assert told(b"{}", header=header).startswith(
            f"inference header size should be in range (0, 2), got: {header}"
        )
    assert told(b"{}", header="abc").startswith(
        "Unable to parse Inference-Header-Content-Length, got: abc"
    )


# --- parameters, settings and the rest ---


def test_parameters_over_grpc_of_another_type(explicit_server, client):
    model = load(client, "told")

    def told(name, output=None, **value):
        request = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[bytes(8)])
        request.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
        place = request if output is None else request.outputs.add(name=output)
        place.parameters[name].SetInParent()
        for kind, one in value.items():
            setattr(place.parameters[name], kind, one)
        return refusal(stub, request)

    with grpc.insecure_channel(explicit_server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        wrong = "invalid value type for '{}' parameter, expected {}"
        assert told("x").startswith(wrong.format("x", "int64_param, bool_param, or string_param"))
        assert told("timeout", string_param="1").startswith(wrong.format("timeout", "int64_param"))
        assert told("priority", int64_param=-1).startswith(
            "invalid value for 'priority', expected value >= 0"
        )
        assert told("triton_x", int64_param=1).startswith(
            "parameter keys starting with 'triton_' are reserved for Triton usage"
        )
        assert told("classification", "OUTPUT0", string_param="1").startswith(
            wrong.format("classification", "int64_param")
        )
        assert told("classification", "OUTPUT0", int64_param=0).startswith(
            "invalid value for 'classification' parameter, expected "
        )


def test_calls_that_ask_for_what_cannot_be(client, loaded, server):
    assert text_of(lambda: client.get_inference_statistics("nobody")) == (
        "requested model 'nobody' is not available: 'nobody' is not found on this server"
    )
    assert text_of(lambda: client.get_trace_settings("nobody")).startswith(
        "Request for unknown model : nobody"
    )
    change = client.update_trace_settings
    assert text_of(lambda: change(settings={"trace_level": ["OFF", "TENSORS"]})).startswith(
        "Expect only one trace level 'OFF' is specified"
    )
    assert text_of(lambda: change(settings={"trace_file": "x"})).startswith(
        "trace file location can not be updated through network protocol"
    )
    assert text_of(lambda: client.update_log_settings({"log_file": "x"})).startswith(
        "log file location can not be updated through network protocol"
    )
    assert text_of(lambda: client.update_log_settings({"log_format": "x"})).startswith(
        "invalid argument for log_format, got: x"
    )
    flag = {"name": "OUTPUT0", "data_type": "TYPE_BOOL", "dims": [2]}
    model = load(client, "flags", input=[flag | {"name": "INPUT0"}], output=[flag])
    output = client.tensors.InferRequestedOutput("OUTPUT0", class_count=1)
    assert text_of(lambda: infer(client, model, datatype=bool, outputs=[output])).startswith(
        "class result not available for output due to unsupported type 'BOOL'"
    )


@pytest.mark.parametrize("protocol", MODULES)
def test_a_decoupled_model_called_for_one_answer(protocol, server):
    with MODULES[protocol].InferenceServerClient(getattr(server, protocol)) as client:
        tensor = MODULES[protocol].InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.ones(1, np.int32))
        told = text_of(lambda: client.infer("repeat", [tensor]))
    assert "doesn't support models with decoupled transaction policy" in told


def test_what_only_rest_refuses(ask):
    def told(path, body, **headers):
        return ask(f"/v2/models/animals/{path}", json.dumps(body), headers).json()["error"]

    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    body = {"inputs": [tensor]}
    assert told("infer", body | {"parameters": {"p": {}}}).startswith(
        "parameter 'p' has invalid type. It is an object"
    )
    assert told("infer", body | {"parameters": {"triton_p": 1}}).startswith(
        "parameter keys starting with 'triton_' are reserved for Triton usage"
    )
    assert told("infer", body, **{"Content-Encoding": "br"}).startswith(
        "Unsupported compression type"
    )
    assert told("generate", {"INPUT0": [1, 2]}).startswith(
        "The schema can not convert input 'INPUT0' to tensor with proper shape"
    )


def test_a_path_or_a_method_that_is_not_there(server):
    def told(method, path):
        connection = http.client.HTTPConnection(server.http)
        connection.request(method, path)
        answer = json.load(connection.getresponse())
        connection.close()
        return answer["error"]

    assert told("GET", "/v2/nothing") == "Not Found: there is nothing at '/v2/nothing'"
    assert told("DELETE", "/v2") == "Method Not Allowed: DELETE, expected GET, HEAD"
