"""Asks a server's models over REST and gRPC, and compares them with what a library answers."""

import contextlib
import http.client
import json
import warnings
from pathlib import Path

import joblib
import numpy as np
import tritonclient.grpc
from server_thread import server_in_thread

from inferd.config.server import ServerConfig

ALLOWED = 'parameters { key: "inferd_allow_pickle" value { string_value: "true" } }\n'
HERE = 'parameters { key: "inferd_process" value { string_value: "server" } }\n'


class Repository:
    """A folder of models, and what to ask of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = {}

    def add(self, name, estimator, config="", file="model.joblib", save=None):
        """Write a model in Triton's layout, which runs in the server unless `config` says so."""
        where = self.folder / name / "1"
        where.mkdir(parents=True)
        (save or (lambda path: joblib.dump(estimator, path)))(where / file)
        (self.folder / name / "config.pbtxt").write_text(ALLOWED + config)
        self.models[name] = estimator


class Asking:
    """Asks one server over REST and over gRPC."""

    def __init__(self, server) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        self.grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")

    def rest(self, model, inputs, outputs=()):
        """Return name -> (datatype, shape, data), or the status and the error's text."""
        body = {"inputs": [tensor(name, array) for name, array in inputs.items()]}
        if outputs:
            body["outputs"] = [{"name": name} for name in outputs]
        self.http.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
        response = self.http.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            return response.status, answer["error"]
        return {
            one["name"]: (one["datatype"], one["shape"], one["data"]) for one in answer["outputs"]
        }

    def rpc(self, model, inputs, outputs=()):
        """Return name -> array."""
        given = []
        for name, array in inputs.items():
            one = tritonclient.grpc.InferInput(name, array.shape, datatype(array))
            one.set_data_from_numpy(array)
            given.append(one)
        wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in outputs] or None
        result = self.grpc.infer(model, given, outputs=wanted)
        names = [one.name for one in result.get_response().outputs]
        return {name: result.as_numpy(name) for name in names}

    def metadata(self, model):
        self.http.request("GET", f"/v2/models/{model}")
        return json.loads(self.http.getresponse().read())

    def reasons(self):
        """Return, for each model that is not ready, why."""
        self.http.request("POST", "/v2/repository/index", "{}")
        index = json.loads(self.http.getresponse().read())
        return {one["name"]: one["reason"] for one in index if one["state"] != "READY"}

    def close(self):
        self.http.close()
        self.grpc.close()


def datatype(array):
    kinds = {"O": "BYTES", "b": "BOOL", "i": "INT", "u": "UINT", "f": "FP"}
    kind = kinds[array.dtype.kind]
    return kind if kind in ("BYTES", "BOOL") else f"{kind}{8 * array.dtype.itemsize}"


def tensor(name, array):
    values = array.ravel().tolist()
    return {"name": name, "datatype": datatype(array), "shape": array.shape, "data": values}


def check(got, expected, tolerance=1e-6):
    """Check an answer over gRPC, or the flat one of REST, against the library's own."""
    expected = np.asarray(expected.toarray() if hasattr(expected, "toarray") else expected)
    if expected.ndim < 2:
        row_count = got[1][0] if isinstance(got, tuple) else len(got)
        expected = expected.reshape(row_count, -1)
    if isinstance(got, tuple):
        assert tuple(got[1]) == expected.shape
        got = np.array(got[2]).reshape(expected.shape)
    assert got.shape == expected.shape
    if expected.dtype.kind in "OUS":
        texts = [one.decode() if isinstance(one, bytes) else one for one in got.ravel().tolist()]
        assert texts == [str(one) for one in expected.ravel().tolist()]
    elif expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=1e-12)
    else:
        assert np.array_equal(got, expected)


@contextlib.contextmanager
def serve(folder, **more):
    config = ServerConfig(
        model_repository=(str(folder),),
        http_port=0,
        grpc_port=0,
        allow_metrics=False,
        strict_readiness=False,
        exit_on_error=False,
        **more,
    )
    with warnings.catch_warnings(), server_in_thread(config) as server:
        warnings.simplefilter("ignore")
        asking = Asking(server)
        yield asking
        asking.close()


def asked(ask, model, rows, outputs=(), name="input"):
    """Return what both protocols answer, after checking that they agree."""
    by_rest = ask.rest(model, {name: rows}, outputs)
    by_grpc = ask.rpc(model, {name: rows}, outputs)
    assert by_rest.keys() == by_grpc.keys()
    for output, array in by_grpc.items():
        check(
            by_rest[output], array if array.dtype != object else np.char.decode(array.astype("S"))
        )
    return by_grpc, {output: one[0] for output, one in by_rest.items()}
