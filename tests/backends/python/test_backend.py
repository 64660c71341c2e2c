"""Whole requests to models in Python: over both protocols, alone and in batches."""

import os
import re
import threading

import numpy as np
import pytest
import tritonclient.http
from serving import ADD_SUB, ADD_SUB_CONFIG, ONE_CONFIG, parameter, running
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException

LIMITED = 'instance_group { kind: KIND_CPU rate_limiter { resources { name: "R" count: 1 } } }\n'
BATCHING = "max_batch_size: 8\ndynamic_batching {}\n"
COUNT = """
    import pathlib, threading
    class TritonPythonModel:
        def execute(self, requests):
            while not (pathlib.Path(pb_utils.get_model_dir()) / "go").exists():
                threading.Event().wait(0.01)
            count = np.full((1, 1), len(requests), np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", count)]) for _ in requests]
"""


@pytest.mark.slow
@pytest.mark.parametrize("over", ["http", "grpc"])
def test_a_model_adds_and_subtracts_in_a_process_of_its_own(serve, over):
    with serve(addsub=(ADD_SUB, ADD_SUB_CONFIG)) as asked:
        a, b = np.arange(16, dtype=np.int32), np.ones(16, np.int32)
        got = asked.ask("addsub", over, INPUT0=a, INPUT1=b)
        assert np.array_equal(got["OUTPUT0"], a + b)
        assert np.array_equal(got["OUTPUT1"], a - b)
        only = asked.ask("addsub", over, ["OUTPUT1"], INPUT0=a, INPUT1=b)
        assert list(only) == ["OUTPUT1"]
        [row] = asked.server.engine.whole.statistics("addsub")
        assert row.inference_count == row.execution_count == 2
        assert 0 < row.inference_stats.compute_infer.ns < row.inference_stats.success.ns


@pytest.mark.slow
def test_the_process_is_another_one_and_goes_when_the_server_stops(serve):
    source = """
        import os
        class TritonPythonModel:
            def execute(self, requests):
                pid = np.array([os.getpid()], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)])]
    """
    with serve(pid=source) as asked:
        pid = int(asked.ask("pid", IN=np.zeros(1, np.int32))["OUT"][0])
        assert pid != os.getpid()
        assert os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_requests_that_come_together_are_executed_together(serve, eventually, tmp_path):
    config = BATCHING + ONE_CONFIG
    with serve(count=(COUNT, config)) as asked:
        counts = []

        def ask():
            counts.append(
                int(asked.ask("count", "grpc", IN=np.zeros((1, 1), np.int32))["OUT"][0, 0])
            )

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        eventually(lambda: asked.server.engine.capacity.request_count == len(threads))
        (tmp_path / "models" / "count" / "1" / "go").touch()
        for thread in threads:
            thread.join()
        assert len(counts) == 16
        assert max(counts) > 1
        [row] = asked.server.engine.whole.statistics("count")
        assert row.inference_count == 16
        assert row.execution_count < 16


@pytest.mark.parametrize(
    "size", [0, 1, 5_000, 600_000, pytest.param(30_000_000, marks=pytest.mark.slow)]
)
def test_tensors_of_any_size_come_back_as_they_went(serve, size):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                [request] = requests
                array = request.inputs()[0].as_numpy()
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
    """
    with serve(echo=source) as asked:
        array = np.arange(size, dtype=np.int32)
        for over in ("http", "grpc"):
            for _ in range(2):
                got = asked.ask("echo", over, IN=array)["OUT"]
                assert np.array_equal(got, array)


@pytest.mark.slow
def test_several_instances_are_several_processes(serve):
    source = """
        import pathlib, threading
        class TritonPythonModel:
            def initialize(self, args):
                self.name = args["model_instance_name"]
            def execute(self, requests):
                place = pathlib.Path(pb_utils.get_model_dir())
                (place / f"{self.name}.runs").touch()
                while len(list(place.glob("*.runs"))) < 2:  # until the other one runs, too
                    threading.Event().wait(0.01)
                name = np.array([self.name], np.object_)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", name)])]
    """
    config = """
        instance_group { count: 2 }
        input { name: "IN" data_type: TYPE_INT32 dims: -1 }
        output { name: "OUT" data_type: TYPE_STRING dims: 1 }
    """
    with serve(two=(source, config)) as asked:
        names = set()

        def ask():
            names.add(asked.ask("two", "grpc", IN=np.zeros(1, np.int32))["OUT"][0])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert names == {b"two_0_0", b"two_0_1"}


def test_what_execute_raises_is_told_with_file_and_line(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                raise ValueError("bad thing")
    """
    with serve(bad=source) as asked:
        for over in ("http", "grpc"):
            with pytest.raises(InferenceServerException) as caught:
                asked.ask("bad", over, IN=np.zeros(1, np.int32))
            told = "model 'bad' failed: ValueError: bad thing (1/model.py, line 7, in execute)"
            assert told in str(caught.value)


LOADS = """
    class TritonPythonModel:
        def execute(self, requests):
            [which] = requests[0].inputs()[0].as_numpy()
            told = "done"
            try:
                if which == 0:
                    pb_utils.load_model(model_name="pid")
                elif which == 1:
                    pb_utils.unload_model(model_name="pid")
                elif which == 2:
                    pb_utils.load_model("no_such_model")
            except pb_utils.TritonModelException as error:
                told = str(error)
            told += f" {pb_utils.is_model_ready('pid')}"
            text = np.array([told], np.object_)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])]
"""
TEXT_CONFIG = ONE_CONFIG.replace('OUT" data_type: TYPE_INT32', 'OUT" data_type: TYPE_STRING')


@pytest.mark.slow
def test_a_model_loads_and_unloads_others_where_clients_may(serve):
    options = {"model_control_mode": "explicit", "load_model": ("loads",)}
    with serve(options, loads=(LOADS, TEXT_CONFIG), pid=(ADD_SUB, ADD_SUB_CONFIG)) as asked:
        told = [asked.ask("loads", IN=np.array([n], np.int32))["OUT"][0] for n in (0, 1, 2)]
        assert told[0] == b"done True"
        assert told[1] == b"done False"
        assert b"there is no such model in it False" in told[2]
    with serve(loads2=(LOADS, TEXT_CONFIG)) as asked:
        told = asked.ask("loads2", IN=np.array([1], np.int32))["OUT"][0]
        assert b"explicit" in told


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_model_starts_processes_that_import_it(serve, method):
    source = f"""
        import multiprocessing
        import c_python_backend_utils
        def square(number):
            return number * number
        class TritonPythonModel:
            def execute(self, requests):
                with multiprocessing.get_context({method!r}).Pool(1) as pool:
                    squares = pool.map_async(square, [2, 3]).get(60)
                out = pb_utils.Tensor("OUT", np.array(squares, np.int32))
                return [pb_utils.InferenceResponse([out]) for _ in requests]
    """
    with serve(pool=source) as asked:
        assert asked.ask("pool", IN=np.zeros(1, np.int32))["OUT"].tolist() == [4, 9]


WRONG_TYPES = """
    def wrong(request):
        zero = np.zeros(1, np.int32)
        yield lambda: pb_utils.Tensor(3, zero)
        yield lambda: pb_utils.Tensor("OUT", [0])
        yield lambda: pb_utils.InferenceResponse([zero])
        yield lambda: pb_utils.InferenceResponse(error="no")
        yield lambda: pb_utils.InferenceRequest(model_name=3, requested_output_names=[])
        yield lambda: pb_utils.InferenceRequest(model_name="m", inputs=[zero])
        yield lambda: pb_utils.InferenceRequest(model_name="m", timeout="soon")
        yield lambda: pb_utils.InferenceRequest(model_name="m", requested_output_names="OUT")
        yield lambda: pb_utils.InferenceRequest(model_name="m", correlation_id=-1)
        yield lambda: pb_utils.InferenceRequest(model_name="m", correlation_id=2**64)
        yield lambda: request.get_response_sender().send(3)

    def said(attempt):
        try:
            attempt()
        except TypeError as error:
            return f"{isinstance(error, pb_utils.TritonModelException)} {error}"
        return "nothing"

    class TritonPythonModel:
        def execute(self, requests):
            texts = [said(attempt) for attempt in wrong(requests[0])]
            out = pb_utils.Tensor("OUT", np.array(texts, np.object_))
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            answer = pb_utils.InferenceResponse([out])
            requests[0].get_response_sender().send(answer, flags=final)
"""


def test_arguments_of_wrong_types_raise_what_models_of_triton_catch(serve):
    with serve(m=(WRONG_TYPES, TEXT_CONFIG)) as asked:
        told = asked.ask("m", IN=np.zeros(1, np.int32))["OUT"].tolist()
    assert told == [
        b"True the name of a Tensor is an int, expected str",
        b"True Tensor 'OUT' needs a numpy array, got list",
        b"True output_tensors of an InferenceResponse holds a ndarray, expected Tensor",
        b"True error of an InferenceResponse is a str, expected TritonError",
        b"True model_name is an int, expected str",
        b"True an item of inputs is a ndarray, expected Tensor",
        b"True timeout is a str, expected int",
        b"True requested_output_names is a str, expected a list",
        b"True correlation_id is -1, expected a number from 0 to 2^64 - 1",
        b"True correlation_id is 18446744073709551616, expected a number from 0 to 2^64 - 1",
        b"True send takes an InferenceResponse, got int",
    ]


def test_what_a_request_tells_has_the_types_that_it_has_in_triton(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                [request] = requests
                names = request.requested_output_names()
                texts = [type(names).__name__, *names, request.parameters()]
                out = pb_utils.Tensor("OUT", np.array(texts, np.object_))
                return [pb_utils.InferenceResponse([out])]
    """
    with serve(m=(source, TEXT_CONFIG)) as asked:
        given = tritonclient.http.InferInput("IN", [1], "INT32")
        given.set_data_from_numpy(np.zeros(1, np.int32))
        result = asked.http.infer("m", [given], parameters={"a": 1, "b": "x"})
    assert result.as_numpy("OUT").tolist() == [b"set", b"OUT", b'{"a":1,"b":"x"}']


def test_a_model_that_chooses_its_devices_itself_is_told_so(serve):
    source = """
        class TritonPythonModel:
            def initialize(self, args):
                self.kind = args["model_instance_kind"]
            def execute(self, requests):
                out = pb_utils.Tensor("OUT", np.array([self.kind], np.object_))
                return [pb_utils.InferenceResponse([out]) for _ in requests]
    """
    with serve(m=(source, TEXT_CONFIG + "instance_group { kind: KIND_MODEL }")) as asked:
        assert asked.ask("m", IN=np.zeros(1, np.int32))["OUT"].tolist() == [b"MODEL"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["worker", "server"])
@pytest.mark.parametrize(
    ("name", "file", "config"),
    [
        ("m", "code.txt", 'backend: "python"\ndefault_model_filename: "code.txt"'),
        ("m", "code", 'backend: "python"\ndefault_model_filename: "code"'),
        ("m.python", "model.python", ""),  # the ending of its name is its backend
    ],
)
def test_the_file_of_a_model_may_be_called_anything(models, where, name, file, config):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                arrays = [request.inputs()[0].as_numpy() + 1 for request in requests]
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", a)]) for a in arrays]
    """
    root = models(**{name: source})
    (root / name / "1" / "model.py").rename(root / name / "1" / file)
    text = config + ONE_CONFIG + parameter("inferd_process", where)
    (root / name / "config.pbtxt").write_text(text)
    with running(root) as asked:
        assert asked.ask(name, IN=np.array([4], np.int32))["OUT"].tolist() == [5]


@pytest.mark.slow
def test_what_is_raised_without_a_text_is_told_by_its_type(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                assert False
    """
    with serve(wrong=source) as asked:
        told = "model 'wrong' failed: AssertionError (1/model.py, line 7, in execute)"
        with pytest.raises(InferenceServerException, match=re.escape(told)):
            asked.ask("wrong", IN=np.zeros(1, np.int32))
        assert asked.http.get_model_metadata("wrong")["platform"] == "python"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["worker", "server"])
def test_a_decoupled_model_is_warmed_up_any_number_of_times(serve, models, place):
    source = """
        class TritonPythonModel:
            def initialize(self, args):
                self.file = args["model_repository"] + "/seen"
            def execute(self, requests):
                for request in requests:
                    with open(self.file, "a") as seen:
                        seen.write(request.request_id())
                    sender = request.get_response_sender()
                    sender.send(pb_utils.InferenceResponse([]))
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    data = 'inputs { key: "IN" value { data_type: TYPE_INT32 dims: 2 zero_data: true } }'
    warmup = f"""
        model_transaction_policy {{ decoupled: true }}
        model_warmup {{ name: "a" batch_size: 3 {data} }}
        model_warmup {{ name: "b" batch_size: 1 count: 2 {data} }}
    """
    with serve(many=(source, ONE_CONFIG + warmup + parameter("inferd_process", place))):
        assert (models() / "many" / "seen").read_text() == "aaabb"


def test_finalize_is_called_before_the_process_ends(serve, models):
    source = """
        import pathlib
        class TritonPythonModel:
            def initialize(self, args):
                self.mark = pathlib.Path(args["model_repository"]) / "finalized"
            def execute(self, requests): ...
            def finalize(self):
                self.mark.touch()
    """
    with serve(ends=source):
        mark = models() / "ends" / "finalized"
        assert not mark.exists()
    assert mark.exists()


@pytest.mark.parametrize("limit", ["off", "execution_count"])
def test_a_stream_that_is_given_up_is_told_to_the_model_before_it_answers(
    serve, eventually, tmp_path, limit
):
    source = f"""
        import threading
        class TritonPythonModel:
            def execute(self, requests):
                open({str(tmp_path / "runs")!r}, "w").close()
                while not requests[0].is_cancelled():
                    threading.Event().wait(0.001)
                open({str(tmp_path / "told")!r}, "w").close()
                flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                requests[0].get_response_sender().send(flags=flags)
    """
    config = "model_transaction_policy { decoupled: true }\n" + ONE_CONFIG + LIMITED
    with serve({"rate_limit": limit}, waits=(source, config)) as asked:
        given = InferInput("IN", (1,), "INT32")
        given.set_data_from_numpy(np.ones(1, np.int32))
        asked.grpc.start_stream(lambda result, error: None)
        asked.grpc.async_stream_infer("waits", [given])
        eventually((tmp_path / "runs").exists)
        asked.grpc.stop_stream(cancel_requests=True)
        eventually((tmp_path / "told").exists)


@pytest.mark.parametrize("limit", ["off", "execution_count"])
@pytest.mark.parametrize("batching", ["", BATCHING, "max_batch_size: 8\nsequence_batching {}\n"])
def test_a_cancelled_request_is_told_to_the_model_that_executes_it(
    serve, eventually, tmp_path, batching, limit
):
    source = f"""
        import threading
        class TritonPythonModel:
            def execute(self, requests):
                answers = []
                for request in requests:
                    given = request.inputs()[0].as_numpy()
                    if given.flat[0]:
                        open({str(tmp_path / "runs")!r}, "w").close()
                        while not request.is_cancelled():
                            threading.Event().wait(0.001)
                        open({str(tmp_path / "told")!r}, "w").close()
                    answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
                return answers
    """
    options = {"rate_limit": limit}
    with serve(options, waits=(source, batching + ONE_CONFIG + LIMITED)) as asked:
        shape = (1, 1) if batching else (1,)
        given = InferInput("IN", shape, "INT32")
        given.set_data_from_numpy(np.ones(shape, np.int32))
        more = {"sequence_id": 7, "sequence_start": True} if "seq" in batching else {}
        call = asked.grpc.async_infer("waits", [given], callback=lambda *_: None, **more)
        eventually((tmp_path / "runs").exists)
        call.cancel()
        eventually((tmp_path / "told").exists)
        more = {"sequence_id": 8, "sequence_start": True} if "seq" in batching else {}
        given.set_data_from_numpy(np.zeros(shape, np.int32))
        answer = asked.grpc.infer("waits", [given], client_timeout=60, **more)
        assert answer.as_numpy("OUT").tolist() == np.zeros(shape).tolist()
