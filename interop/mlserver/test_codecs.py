"""MLServer's codecs and its gRPC classes, of which its clients in Python make requests."""

import urllib.request

import grpc
import numpy as np
import pandas as pd
import pytest
from mlserver.codecs import NumpyRequestCodec, PandasCodec
from mlserver.grpc import converters, model_repository_pb2
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub
from mlserver.grpc.model_repository_pb2_grpc import ModelRepositoryServiceStub
from mlserver.types import InferenceResponse

ROWS = [[0.25, 7], [0.75, 7], [0.5, -7]]
LEAVES = [[1], [2], [1]]
TABLES = {
    "floats": pd.DataFrame(ROWS, columns=["a", "b"]),
    "another order": pd.DataFrame(ROWS, columns=["a", "b"])[["b", "a"]],
    "other types": pd.DataFrame(ROWS, columns=["a", "b"]).astype({"a": "f4", "b": "i2"}),
}
MANY = 500


@pytest.fixture(params=["REST", "gRPC", "gRPC, raw"])
def ask(request, two_ports):
    """ask(request) returns the answer of the model "forest"."""

    def over_rest(asked):
        url = f"{two_ports.url}/v2/models/forest/infer"
        body = asked.model_dump_json().encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return InferenceResponse.model_validate_json(answer.read())

    def over_grpc(asked):
        with grpc.insecure_channel(two_ports.grpc) as channel:
            message = converters.ModelInferRequestConverter.from_types(
                asked, model_name="forest", use_raw="raw" in request.param
            )
            answer = GRPCInferenceServiceStub(channel).ModelInfer(message)
            return converters.ModelInferResponseConverter.to_types(answer)

    return over_rest if request.param == "REST" else over_grpc


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_pandas_are_taken(ask, table):
    answer = ask(PandasCodec.encode_request(table))
    assert NumpyRequestCodec.decode_response(answer).tolist() == LEAVES


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1"])
def test_arrays_of_numpy_are_taken(ask, dtype):
    rows = np.array([[0, 7], [1, 7]] * MANY).astype(dtype)
    answer = ask(NumpyRequestCodec.encode_request(rows))
    assert NumpyRequestCodec.decode_response(answer).tolist() == [[1], [2]] * MANY


def test_its_own_service_lists_models(two_ports):
    with grpc.insecure_channel(two_ports.grpc) as channel:
        service = ModelRepositoryServiceStub(channel)
        index = service.RepositoryIndex(model_repository_pb2.RepositoryIndexRequest(ready=True))
    assert {"forest", "rows"} <= {model.name for model in index.models}
