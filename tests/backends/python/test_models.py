"""The models of models/, each of which covers a part of what model.py may use."""

import http.client
import json
import math
import queue
import shutil
import urllib.request
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from serving import parameter, running
from tritonclient.utils import InferenceServerException

MODELS = Path(__file__).parent / "models"
PATIENCE_S = 60
NUMBERS = np.array([1, 2, 3], np.int32)

pytestmark = pytest.mark.slow  # thirty processes start


@pytest.fixture(scope="module", params=["worker", "server"])
def asked(tmp_path_factory, request):
    """A server with all models, in processes of their own or in the server's."""
    root = tmp_path_factory.mktemp("repository") / "models"
    shutil.copytree(MODELS, root, ignore=shutil.ignore_patterns("__pycache__"))
    for config in root.glob("*/config.pbtxt"):
        config.write_text(config.read_text() + parameter("inferd_process", request.param))
    with running(root) as server:
        rows = server.server.engine.catalog.index()
        assert [(row.name, row.reason) for row in rows if row.reason] == []
        yield server


@pytest.fixture(params=["http", "grpc"])
def over(request):
    """Both protocols."""
    return request.param


@pytest.fixture
def stream(asked):
    """stream(model, array) returns what comes on a stream: arrays by name, or errors."""

    def ask(model, *arrays, empty_final=False):
        answers = queue.Queue()
        asked.grpc.stop_stream()
        asked.grpc.start_stream(lambda result, error: answers.put(error or result))
        for number, array in enumerate(arrays):
            given = tritonclient.grpc.InferInput("IN", array.shape, "INT32")
            given.set_data_from_numpy(array)
            asked.grpc.async_stream_infer(
                model, [given], request_id=str(number), enable_empty_final_response=empty_final
            )
        asked.grpc.stop_stream()
        return list(answers.queue)

    return ask


def elements(answers):
    return [int(answer.as_numpy("OUT")[0]) for answer in answers]


def test_tensors_in_tensors_out(asked, over):
    got = asked.ask("add_sub", over, IN=NUMBERS, OTHER=NUMBERS)
    assert got["SUM"].tolist() == [2, 4, 6]
    assert got["DIFFERENCE"].tolist() == [0, 0, 0]


def test_initialize_is_told_who_it_is(asked, over):
    told = json.loads(asked.ask("arguments", over, IN=NUMBERS)["OUT"][0])
    assert told["model_name"] == "arguments"
    assert told["model_version"] == "1"
    assert told["model_instance_kind"] == "CPU"
    assert told["model_instance_device_id"] == "0"
    assert told["model_instance_name"] == "arguments_0"
    assert Path(told["model_repository"]).name == "arguments"
    assert json.loads(told["model_config"])["output"][0]["data_type"] == "TYPE_STRING"


def test_the_configuration_is_read_by_helpers(asked, over):
    got = asked.ask("configuration", over, IN=NUMBERS)
    told = json.loads(got["OUT"][0])
    assert told["input"]["name"] == "IN"
    assert told["no input"] is told["no output"] is None
    assert told["decoupled"] is False
    assert told["parameter"] == "blue"
    assert len(told["types"]) == 13
    assert got["HALF"].dtype == np.float16


def test_datatypes_have_numbers(asked, over):
    assert asked.ask("type_numbers", over, IN=NUMBERS)["OUT"].tolist() == [True]


def test_strings_are_objects_of_bytes(asked, over):
    words = np.array(["straße", "", "日本"], np.object_)
    got = asked.ask("strings", over, IN=words)
    assert [word.decode() for word in got["OUT"]] == ["STRASSE", "", "日本"]
    assert got["COUNT"].tolist() == [3]
    none = asked.ask("strings", over, IN=np.array([], np.object_))
    assert none["COUNT"].tolist() == [0]


def test_a_tensor_tells_all_about_itself_and_may_be_written(asked, over):
    array = np.arange(6, dtype=np.int32).reshape(3, 2)
    for _ in range(2):
        assert (asked.ask("tensor_methods", over, IN=array)["OUT"] == array + 1).all()
    nothing = np.zeros((0, 2), np.int32)
    assert asked.ask("tensor_methods", over, IN=nothing)["OUT"].shape == (0, 2)


def test_an_output_need_not_be_contiguous(asked, over):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert (asked.ask("strided", over, IN=array)["OUT"] == array.T[::-1]).all()


def test_dlpack_shares_the_memory(asked, over):
    got = asked.ask("dlpack", over, IN=np.arange(4, dtype=np.float32))["OUT"]
    assert got.tolist() == [42, 1, 2, 3]


def test_brain_floats_go_through_dlpack(asked):
    array = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    given = tritonclient.grpc.InferInput("IN", array.shape, "BF16")
    given.set_data_from_numpy(array)
    got = asked.grpc.infer("brain_floats", [given]).as_numpy("OUT")
    assert got.tolist() == array.tolist()


def test_a_request_tells_all_about_itself(asked, over):
    kind = tritonclient.http if over == "http" else tritonclient.grpc
    given = kind.InferInput("IN", [3], "INT32")
    given.set_data_from_numpy(NUMBERS)
    result = getattr(asked, over).infer(
        "request_fields",
        [given],
        request_id="r-7",
        sequence_id=99,
        sequence_start=True,
        timeout=1234567,
        parameters={"own": "yes", "number": 3, "flag": True},
        outputs=[kind.InferRequestedOutput("OUT")],
    )
    assert json.loads(result.as_numpy("OUT")[0]) == {
        "id": "r-7",
        "correlation_id": 99,
        "flags": 1,
        "timeout": 1234567,
        "parameters": {"own": "yes", "number": 3, "flag": True},
        "outputs": ["OUT"],
        "inputs": ["IN"],
        "cancelled": False,
        "trace": None,
    }
    plain = json.loads(asked.ask("request_fields", over, IN=NUMBERS)["OUT"][0])
    assert plain["outputs"] == ["OUT", "UNUSED"]
    assert plain["id"] == ""
    assert plain["correlation_id"] == plain["flags"] == 0


def test_a_parameter_may_be_a_number_that_json_has_not(asked, over):
    kind = tritonclient.http if over == "http" else tritonclient.grpc
    given = kind.InferInput("IN", [3], "INT32")
    given.set_data_from_numpy(NUMBERS)
    odd = {"far": math.inf, "near": -math.inf, "none": math.nan, "half": 0.5}
    result = getattr(asked, over).infer("request_fields", [given], parameters=odd)
    told = json.loads(result.as_numpy("OUT")[0])["parameters"]
    assert math.isnan(told.pop("none"))
    assert told == {"far": math.inf, "near": -math.inf, "half": 0.5}


def test_parameters_of_a_request_can_be_those_of_a_call(asked, over):
    kind = tritonclient.http if over == "http" else tritonclient.grpc
    given = kind.InferInput("IN", [3], "INT32")
    given.set_data_from_numpy(NUMBERS)
    sent = {"text": "ä", "least": -(2**63), "flag": True, "far": 1e300, "odd": math.inf}
    result = getattr(asked, over).infer("call_parameters", [given], parameters=sent)
    assert json.loads(result.as_numpy("OUT")[0]) == sent


def test_sequences_come_with_their_id_and_flags(asked, over):
    kind = tritonclient.http if over == "http" else tritonclient.grpc
    sums = {}
    for step, (start, end) in enumerate([(True, False), (False, False), (False, True)]):
        for id, value in ((7, 1), ("eight", 10)):
            given = kind.InferInput("IN", [1], "INT32")
            given.set_data_from_numpy(np.array([value], np.int32))
            result = getattr(asked, over).infer(
                "sequence", [given], sequence_id=id, sequence_start=start, sequence_end=end
            )
            sums[id] = int(result.as_numpy("OUT")[0])
            assert int(result.as_numpy("FLAGS")[0]) == [1, 0, 2][step]
    assert sums == {7: 3, "eight": 30}


def test_flags_come_without_a_sequence_too(asked):
    given = {"name": "IN", "shape": [3], "datatype": "INT32", "data": [1, 2, 3]}
    flags = {"sequence_start": True, "sequence_end": True}
    body = json.dumps({"inputs": [given], "parameters": flags})  # Triton's client sends no such
    connection = http.client.HTTPConnection("127.0.0.1", asked.server.http_port, timeout=30)
    connection.request("POST", "/v2/models/request_fields/infer", body)
    outputs = json.loads(connection.getresponse().read())["outputs"]
    connection.close()
    [told] = (json.loads(one["data"][0]) for one in outputs if one["name"] == "OUT")
    assert (told["correlation_id"], told["flags"]) == (0, 3)


def test_a_response_may_have_parameters(asked):
    given = tritonclient.http.InferInput("IN", [3], "INT32")
    given.set_data_from_numpy(NUMBERS)
    got = asked.http.infer("response_parameters", [given]).get_response()["parameters"]
    assert {
        "text": "a",
        "number": 7,
        "flag": True,
        "part": 0.5,
        "far": -1e300,
    }.items() <= got.items()


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (0, 400, "UNKNOWN"),
        (1, 500, "INTERNAL"),
        (2, 404, "NOT_FOUND"),
        (3, 400, "INVALID_ARGUMENT"),
        (4, 503, "UNAVAILABLE"),
        (5, 501, "UNIMPLEMENTED"),
        (6, 400, "ALREADY_EXISTS"),
        (7, 400, "CANCELLED"),
    ],
)
def test_an_error_has_its_status(asked, number, status, code):
    array = np.array([number], np.int32)
    with pytest.raises(InferenceServerException) as caught:
        asked.ask("errors", "http", IN=array)
    assert caught.value.status() == str(status) or f"[{status}]" in str(caught.value)
    assert "told so: __ErrorCode." in str(caught.value)
    with pytest.raises(InferenceServerException) as caught:
        asked.ask("errors", "grpc", IN=array)
    assert caught.value.status() == f"StatusCode.{code}"


def test_a_model_exception_is_told_in_its_own_words(asked, over):
    with pytest.raises(InferenceServerException, match=r"'exceptions' failed: not today \(1/model"):
        asked.ask("exceptions", over, IN=NUMBERS)


def test_of_a_batch_some_may_fail(asked):
    def later(value):
        given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[value]], np.int32))
        done = queue.Queue()
        asked.grpc.async_infer(
            "some_fail", [given], lambda result, error: done.put(error or result)
        )
        return done

    good, bad, also_good, last = [later(value).get(timeout=PATIENCE_S) for value in (1, -1, 2, 3)]
    assert "a negative number" in str(bad)
    for one in (good, also_good, last):
        assert one.as_numpy("OUT")[0, 0] >= 1


def test_a_sender_answers_after_execute(asked, over):
    for _ in range(3):
        assert asked.ask("sender_once", over, IN=NUMBERS)["OUT"].tolist() == [2, 4, 6]


def test_a_sender_refuses_what_makes_no_sense(asked, over):
    got = [text.decode() for text in asked.ask("sender_misuse", over, IN=NUMBERS)["OUT"]]
    assert len(got) == 4
    assert "send takes a response, or the final flag" in got[0]
    assert "got int" in got[1]
    assert "flags 5" in got[2]
    assert "the final flag came before a response" in got[3]


@pytest.mark.parametrize("model", ["repeat", "repeat_final", "repeat_async"])
@pytest.mark.parametrize("count", [16, 40, 100])  # the final flag finds no room after 16 and 40
def test_a_decoupled_model_answers_any_number_of_times(stream, model, count):
    array = np.arange(count, dtype=np.int32)
    assert elements(stream(model, array)) == list(range(count))


def test_the_final_flag_by_itself_is_an_empty_answer_for_who_wants_it(stream):
    *answers, last = stream("repeat", NUMBERS, empty_final=True)
    assert elements(answers) == [1, 2, 3]
    assert last.get_response().parameters["triton_final_response"].bool_param
    assert not last.get_response().outputs
    assert stream("repeat", np.zeros(0, np.int32)) == []
    answers = stream("repeat_final", NUMBERS, empty_final=True)
    finals = [a.get_response().parameters["triton_final_response"].bool_param for a in answers]
    assert finals == [False, False, True]


def test_requests_of_a_stream_are_told_apart(stream):
    arrays = [np.full(5, number, np.int32) for number in range(4)]
    for model in ("repeat", "repeat_final", "repeat_async"):
        got = [(a.get_response().id, int(a.as_numpy("OUT")[0])) for a in stream(model, *arrays)]
        assert sorted(got) == sorted((str(n), n) for n in range(4) for _ in range(5))


def test_a_decoupled_model_streams_over_http(asked):
    url = f"http://127.0.0.1:{asked.server.http_port}/v2/models/repeat/generate_stream"
    with urllib.request.urlopen(url, json.dumps({"IN": [5, 6, 7]}).encode()) as answer:
        lines = [line[6:] for line in answer.read().decode().splitlines() if line]
    assert [json.loads(line)["OUT"] for line in lines] == [5, 6, 7]


@pytest.mark.parametrize(
    ("which", "answer_count", "expected"),
    [
        (0, 0, "ValueError: before any response (1/model.py, line 13, in execute)"),
        (1, 1, "ValueError: after a response (1/model.py, line 16, in execute)"),
        (
            2,
            1,
            "returned a list; a decoupled model sends its responses, execute must return None",
        ),
        (3, 1, "let go of the request without sending its final response"),
    ],
)
def test_a_decoupled_model_that_is_wrong_ends_its_stream(stream, which, answer_count, expected):
    *answers, error = stream("decoupled_faults", np.array([which], np.int32))
    assert len(answers) == answer_count
    assert expected in str(error)


def test_a_decoupled_model_goes_on_after_a_response_that_is_an_error(asked, stream):
    first, error, last = stream("decoupled_faults", np.array([5], np.int32))
    assert "one of three" in str(error)
    assert elements([first, last]) == [5, 5]
    url = f"http://127.0.0.1:{asked.server.http_port}/v2/models/decoupled_faults/generate_stream"
    with urllib.request.urlopen(url, b'{"IN": 5}') as answer:
        events = [json.loads(line[6:]) for line in answer.read().splitlines() if line]
    assert [event.get("OUT", event.get("error")) for event in events] == [5, "one of three", 5]


def test_a_response_after_the_final_one_fails_nobody(stream):
    assert len(stream("decoupled_faults", np.array([4], np.int32))) == 1
    assert len(stream("decoupled_faults", np.array([4], np.int32))) == 1


def test_a_model_waits_for_a_slow_client_and_ends_when_it_goes(asked, stream):
    url = f"http://127.0.0.1:{asked.server.http_port}/v2/models/endless/generate_stream"
    with urllib.request.urlopen(url, json.dumps({"IN": 1}).encode()) as answer:
        for _ in range(50):
            answer.readline()
    [last] = stream("endless", np.zeros(1, np.int32))
    assert int(last.as_numpy("COUNT")[0]) >= 25


def test_execute_may_be_a_coroutine(asked, over):
    assert asked.ask("coroutine", over, IN=NUMBERS)["OUT"].tolist() == [2, 3, 4]


def test_execute_may_be_a_function_around_a_coroutine(asked, over):
    for _ in range(2):
        assert asked.ask("wrapped", over, IN=NUMBERS)["OUT"].tolist() == [2, 3, 4]


def test_a_model_has_metrics_of_its_own(asked, over):
    before = asked.ask("metrics", over, IN=np.array([0.5]))["OUT"]
    after = asked.ask("metrics", over, IN=np.array([20.0]))["OUT"]
    assert after[0] == before[0] + 1
    assert after[1] == 20
    url = f"http://127.0.0.1:{asked.server.metrics_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    count = int(after[0])
    assert f'requests_of_mine{{model="metrics",quoted="a\\"b"}} {float(count)}\n' in text
    assert "# TYPE last_of_mine gauge\nlast_of_mine 20.0\n" in text
    assert f'sizes_of_mine_bucket{{kind="in",le="1.0"}} {count // 2}\n' in text
    assert f'sizes_of_mine_bucket{{kind="in",le="+Inf"}} {count}\n' in text
    assert f'sizes_of_mine_count{{kind="in"}} {count}\n' in text


def test_a_model_imports_what_lies_beside_it(asked, over):
    got = asked.ask("neighbours", over, IN=NUMBERS)["OUT"]
    assert got.tolist() == [b"helper", b"beside", b"1"]


def test_a_model_calls_another(asked, over):
    [before] = asked.server.engine.whole.statistics("add_sub")
    assert asked.ask("call", over, IN=NUMBERS)["OUT"].tolist() == [2, 4, 6]
    [after] = asked.server.engine.whole.statistics("add_sub")
    assert after.inference_count == before.inference_count + 1


def test_a_call_may_name_its_model_in_bytes(asked, over):
    named = np.array([b"add_sub"], np.object_)
    assert asked.ask("call_bytes", over, IN=NUMBERS, MODEL=named)["OUT"].tolist() == [2, 4, 6]
    unknown = np.array([b"no_such_model"], np.object_)
    with pytest.raises(InferenceServerException, match="unknown model: 'no_such_model'"):
        asked.ask("call_bytes", over, IN=NUMBERS, MODEL=unknown)
    not_utf8 = np.array([b"\xff"], np.object_)
    with pytest.raises(InferenceServerException, match="model_name is no UTF-8: "):
        asked.ask("call_bytes", over, IN=NUMBERS, MODEL=not_utf8)


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_model_calls_others_at_once(asked, over, size):
    array = np.arange(size, dtype=np.int32)
    assert (asked.ask("call_async", over, IN=array)["OUT"] == 10 * array + 45).all()
    expected = 4 * array + 6 + 8 * array + 28
    assert (asked.ask("call_gathered", over, IN=array)["OUT"] == expected).all()


def test_a_model_calls_a_decoupled_one(asked, over):
    array = np.arange(50, dtype=np.int32)
    got = asked.ask("call_decoupled", over, IN=array)["OUT"]
    assert got.tolist() == [*range(50), *range(50)]


def test_a_call_of_a_decoupled_model_goes_on_after_an_error_among_its_responses(asked, over):
    got = asked.ask("call_mid_errors", over, IN=NUMBERS)["OUT"]
    assert got.tolist() == [b"1 tensors", b"one of three", b"1 tensors", b"0 tensors"]


def test_a_call_that_fails_is_an_error_in_its_response(asked, over):
    got = [text.decode() for text in asked.ask("call_faults", over, IN=NUMBERS)["OUT"]]
    unknown, failed, invalid, decoupled, itself, streamed, unnamed = got
    assert unknown.startswith("__ErrorCode.NOT_FOUND Request for unknown model: 'no_such_model'")
    assert failed.startswith("__ErrorCode.INTERNAL model 'exceptions' failed: not today")
    assert invalid.startswith("__ErrorCode.INVALID_ARG expected 2 inputs but got 1 inputs")
    assert decoupled.startswith("__ErrorCode.UNSUPPORTED this call doesn't support models with ")
    assert decoupled.endswith("in a model.py exec(decoupled=True)")
    assert itself.endswith("wait for that call: call_faults -> call_faults")
    assert "unknown model: 'x'" in streamed
    assert unnamed == "model_name of an InferenceRequest should not be empty"


def test_a_call_may_be_part_of_a_sequence(asked, over):
    assert asked.ask("call_sequence", over, IN=np.array([5], np.int32))["OUT"].tolist() == [15]


def test_a_call_keeps_flags_without_a_sequence(asked, over):
    *flags, refused = asked.ask("call_flags", over, IN=np.array([5], np.int32))["OUT"].tolist()
    assert flags == [b"0", b"1", b"2", b"3"]
    assert refused.startswith(b"inference request to model 'sequence' must specify a non-zero")


def test_an_optional_input_may_be_missing(asked, over):
    assert asked.ask("optional", over, IN=NUMBERS)["OUT"].tolist() == [False]
    assert asked.ask("optional", over, IN=NUMBERS, MAYBE=NUMBERS)["OUT"].tolist() == [True]


def test_a_model_completes_its_own_configuration(asked, over):
    array = np.arange(8, dtype=np.int32).reshape(2, 4)
    assert (asked.ask("auto_complete", over, IN=array)["OUT"] == array * 3).all()
    config = asked.http.get_model_config("auto_complete")
    assert config["max_batch_size"] == 8
    assert "dynamic_batching" in config
    assert config["input"][1]["optional"] is True


def test_a_model_says_itself_that_it_is_decoupled(stream):
    assert elements(stream("auto_decoupled", np.array([9], np.int32))) == [9]


def test_a_model_asks_whether_others_are_ready(asked, over):
    for name, is_ready in (("add_sub", True), ("no_such_model", False)):
        got = asked.ask("ready", over, IN=np.array([name], np.object_))["OUT"]
        assert got.tolist() == [is_ready]
