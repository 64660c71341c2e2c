"""Models that are broken, and what becomes of those who ask them, and of everybody else."""

import contextlib
import json
import os
import signal
import threading
import urllib.request
from functools import partial

import numpy as np
import pytest
from serving import ADD_SUB, ADD_SUB_CONFIG, ONE_CONFIG, parameter
from tritonclient.utils import InferenceServerException

ZERO = np.zeros(1, np.int32)

EXECUTE = """
    class TritonPythonModel:
        def execute(self, requests):
            return {}
"""

PID = """
    import os, pathlib, threading
    class TritonPythonModel:
        def execute(self, requests):
            if requests[0].inputs()[0].as_numpy()[0] == 1:
                (pathlib.Path(pb_utils.get_model_dir()) / "hangs").touch()
                threading.Event().wait()
            pid = np.array([os.getpid()], np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)])]
"""


def reason_of(asked, model):
    [row] = [row for row in asked.server.engine.catalog.index() if row.name == model]
    return f"{row.state.value}: {row.reason}"


def refused(asked, model, over="grpc", **inputs):
    with pytest.raises(InferenceServerException) as caught:
        asked.ask(model, over, **(inputs or {"IN": ZERO}))
    return str(caught.value)


LOADS = {
    "no file": (None, "there is no 1/model.py"),
    "a syntax error": ("class X(:\n", "SyntaxError: invalid syntax (1/model.py, line 4)"),
    "an import that fails": (
        "import no_such_module\n",
        "ModuleNotFoundError: No module named 'no_such_module' (1/model.py, line 4, in <module>)",
    ),
    "no class": ("x = 1\n", "1/model.py defines no class TritonPythonModel"),
    "no execute": (
        "class TritonPythonModel:\n    pass\n",
        "class TritonPythonModel in 1/model.py has no method execute",
    ),
    "an initialize that raises": (
        "class TritonPythonModel:\n    def initialize(self, args):\n"
        "        raise ValueError('nope')\n    def execute(self, requests): ...\n",
        "ValueError: nope (1/model.py, line 6, in initialize)",
    ),
    "an initialize that exits": (
        "import sys\nclass TritonPythonModel:\n    def initialize(self, args):\n"
        "        sys.exit(3)\n    def execute(self, requests): ...\n",
        "SystemExit: 3 (1/model.py, line 7, in initialize)",
    ),
    "a crash at the import": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        "its worker process was killed by signal 11 (SIGSEGV) at the start",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LOADS)
def test_a_model_that_cannot_be_loaded_says_why(serve, what):
    source, expected = LOADS[what]
    with serve(broken=source, good=(ADD_SUB, ADD_SUB_CONFIG)) as asked:
        reason = reason_of(asked, "broken")
        assert reason.startswith("UNAVAILABLE: ")
        assert expected in reason
        assert str(os.sep + "tmp") not in reason
        asked.ask("good", INPUT0=np.zeros(16, np.int32), INPUT1=np.zeros(16, np.int32))


@pytest.mark.slow
def test_an_initialize_that_hangs_is_given_up(serve):
    source = """
        import threading
        class TritonPythonModel:
            def initialize(self, args):
                threading.Event().wait()
            def execute(self, requests): ...
    """
    options = {"backend_config": ("python,stub-timeout-seconds=1",)}
    with serve(options, hangs=source) as asked:
        assert "its worker process was not ready within 1 s" in reason_of(asked, "hangs")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["load", "unload"])
def test_an_initialize_cannot_change_the_model_it_belongs_to(serve, verb):
    source = f"""
        class TritonPythonModel:
            def initialize(self, args):
                pb_utils.{verb}_model("itself")
            def execute(self, requests): ...
    """
    options = {"model_control_mode": "explicit", "load_model": ("itself",)}
    with serve(options, itself=source) as asked:
        reason = f"model 'itself' is being loaded, and cannot {verb} itself (1/model.py, line 7"
        assert reason in reason_of(asked, "itself")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["worker", "server"])
def test_models_that_load_each_other_as_they_are_loaded_are_told_so(serve, place):
    def loads(other):
        source = f"""
            class TritonPythonModel:
                def initialize(self, args):
                    pb_utils.load_model("{other}")
                def execute(self, requests): ...
        """
        return source, ONE_CONFIG + parameter("inferd_process", place)

    options = {"model_control_mode": "explicit"}
    with serve(options, a=loads("b"), b=loads("c"), c=loads("a")) as asked:
        with pytest.raises(InferenceServerException) as caught:
            asked.http.load_model("a")
        for reason in (str(caught.value), reason_of(asked, "c")):
            assert "initialize loads the next wait for each other: c -> a -> b -> c" in reason
        assert "c -> a -> b -> c" in reason_of(asked, "a")


ANSWERS = {
    "None": ("None", "line 6, returned None, expected a list of 1 InferenceResponse"),
    "too few": ("[]", "returned 0 responses to 1 requests"),
    "no list": ("7", "returned an int, expected a list of 1 InferenceResponse"),
    "a wrong element": ("[7]", "a list that holds an int, expected InferenceResponse"),
    "None in a list": ("[None]", "a list that holds None, expected InferenceResponse"),
    "a wrong tensor": (
        "[pb_utils.InferenceResponse([7])]",
        "output_tensors of an InferenceResponse holds an int, expected Tensor (1/model.py, line 7",
    ),
    "a wrong array": (
        "[pb_utils.InferenceResponse([pb_utils.Tensor('OUT', [7])])]",
        "Tensor 'OUT' needs a numpy array, got list (1/model.py, line 7",
    ),
    "no name": (
        "[pb_utils.InferenceResponse([pb_utils.Tensor('', np.zeros(1))])]",
        "a Tensor needs a name, got '' (1/model.py, line 7",
    ),
    "no datatype at all": (
        "[pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, complex))])]",
        "numpy dtype complex128 has no counterpart",
    ),
    "an exit": ("__import__('sys').exit(1)", "SystemExit: 1 (1/model.py, line 7"),
    "two answers": (
        "[pb_utils.InferenceResponse([])] * 2",
        "returned 2 responses to 1 requests",
    ),
    "a sent one and another": (
        "[requests[0].get_response_sender().send(pb_utils.InferenceResponse("
        "error=pb_utils.TritonError('the first'))) or pb_utils.InferenceResponse([])]",
        "the first",
    ),
    "a double send": (
        "[s := requests[0].get_response_sender(), s.send(pb_utils.InferenceResponse("
        "error=pb_utils.TritonError('once'))), s.send(pb_utils.InferenceResponse([]))]",
        "once",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ANSWERS)
def test_an_execute_that_gives_no_answer_is_told_to_the_client(serve, what):
    expression, expected = ANSWERS[what]
    source = EXECUTE.format(expression)
    with serve(odd=source) as asked:
        for over in ("http", "grpc"):
            told = refused(asked, "odd", over)
            assert expected in told
            assert "/tmp" not in told


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_only_its_own_request(serve, eventually, tmp_path):
    with serve(victim=PID, other=PID) as asked:
        [pid] = asked.ask("victim", "grpc", IN=ZERO)["OUT"]
        [other] = asked.ask("other", "grpc", IN=ZERO)["OUT"]
        told = []
        hung = threading.Thread(
            target=lambda: told.append(refused(asked, "victim", IN=np.ones(1, np.int32)))
        )
        hung.start()
        eventually((tmp_path / "models" / "victim" / "1" / "hangs").exists)
        os.kill(pid, signal.SIGKILL)
        hung.join()
        assert "the worker process of model 'victim' was killed by signal 9 (SIGKILL)" in told[0]
        assert "StatusCode.UNAVAILABLE" in told[0]
        [new] = asked.ask("victim", "grpc", IN=ZERO)["OUT"]
        assert new != pid
        assert asked.ask("other", "grpc", IN=ZERO)["OUT"][0] == other
    eventually(lambda: not os.path.exists(f"/proc/{new}"))


@pytest.mark.slow
def test_a_worker_that_is_started_again_does_not_run_other_code(serve, eventually, tmp_path):
    folder = tmp_path / "models" / "victim" / "1"

    def asked_once():
        try:
            return asked.ask("victim", "grpc", IN=ZERO)["OUT"].tolist()
        except InferenceServerException as error:
            return str(error)

    with serve(victim=PID) as asked:
        [pid] = asked_once()
        (folder / "log.txt").write_text("models write into their folders")
        code = (folder / "model.py").read_text()
        (folder / "model.py").write_text(code.replace("os.getpid()", "7"))
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "its files have changed" in asked_once())
        (folder / "model.py").write_text(code)
        [new] = eventually(lambda: isinstance(found := asked_once(), list) and found)
        assert new not in (pid, 7)


@pytest.mark.slow
def test_requests_that_come_while_a_worker_starts_again_wait_for_it(serve, eventually):
    with serve(victim=PID) as asked:
        for _ in range(3):
            [pid] = asked.ask("victim", "grpc", IN=ZERO)["OUT"]
            os.kill(pid, signal.SIGKILL)
            eventually(partial(is_reaped, pid))
            [new] = asked.ask("victim", "grpc", IN=ZERO)["OUT"]
            assert new != pid


@pytest.mark.slow
def test_a_worker_with_a_rate_limiter_is_started_again_too(serve, eventually):
    limiter = 'instance_group { rate_limiter { resources { name: "R" count: 1 } } }'
    with serve({"rate_limit": "execution_count"}, victim=(PID, ONE_CONFIG + limiter)) as asked:
        [pid] = asked.ask("victim", IN=ZERO)["OUT"]
        os.kill(pid, signal.SIGKILL)

        def another():
            with contextlib.suppress(InferenceServerException):
                return asked.ask("victim", "grpc", IN=ZERO)["OUT"].tolist()

        assert eventually(another) != [pid]


@pytest.mark.slow
def test_a_lost_request_runs_once_more_where_the_model_allows_it(serve):
    source = """
        import os, pathlib
        class TritonPythonModel:
            def execute(self, requests):
                mark = pathlib.Path(pb_utils.get_model_dir()) / "mark"
                if not mark.exists():
                    mark.touch()
                    os._exit(5)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.int32))])]
    """
    config = ONE_CONFIG + parameter("inferd_retry_lost_requests", "true")
    with serve(again=(source, config)) as asked:
        assert asked.ask("again", IN=ZERO)["OUT"].tolist() == [1]


@pytest.mark.slow
def test_an_execution_that_takes_too_long_ends_the_worker(serve, eventually):
    config = ONE_CONFIG + parameter("inferd_execution_timeout_seconds", "0.3")
    with serve(hangs=(PID, config)) as asked:
        told = refused(asked, "hangs", IN=np.ones(1, np.int32))
        assert "was killed: an execution took longer than 0.3 s" in told

        def another():  # on a busy machine any execution may take that long
            with contextlib.suppress(InferenceServerException):
                return asked.ask("hangs", "grpc", IN=ZERO)["OUT"].tolist()

        assert len(eventually(another)) == 1


@pytest.mark.slow
def test_a_worker_that_cannot_start_again_is_unavailable_with_its_reason(serve, eventually):
    source = """
        import os
        from pathlib import Path
        class TritonPythonModel:
            def initialize(self, args):
                self.ended = Path(args["model_repository"]) / "ended"
                if self.ended.exists():
                    os._exit(7)
            def execute(self, requests):
                self.ended.touch()
                os._exit(7)
    """
    with serve(dies=source) as asked:
        why = (
            "model 'dies': its worker process ended with code 7 at the start; the next start is in"
        )
        eventually(lambda: f"cannot run: {why}" in refused(asked, "dies"))
        assert why in reason_of(asked, "dies")
        assert asked.http.is_model_ready("dies") is False


def test_memory_beyond_the_limit_is_refused_to_the_model_alone(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                count = int(requests[0].inputs()[0].as_numpy()[0])
                return [pb_utils.InferenceResponse([
                    pb_utils.Tensor("OUT", np.ones(count, np.int32)[:1].copy())])]
    """
    config = ONE_CONFIG + parameter("inferd_memory_limit_bytes", str(1 << 30))
    with serve(greedy=(source, config)) as asked:
        told = refused(asked, "greedy", IN=np.array([1 << 30], np.int32))
        assert "MemoryError" in told
        assert "(1/model.py, line 9, in execute)" in told
        assert asked.ask("greedy", "grpc", IN=np.ones(1, np.int32))["OUT"].tolist() == [1]


def test_what_a_model_prints_and_logs_is_in_the_log_with_its_name(serve, caplog, eventually):
    source = """
        import sys
        class TritonPythonModel:
            def execute(self, requests):
                print("hello from print")
                print("x" * 100_000)
                print("to stderr", file=sys.stderr)
                pb_utils.Logger.log_info("by the logger")
                pb_utils.Logger.log_warn("a warning")
                pb_utils.Logger.log_error("an error")
                pb_utils.Logger.log("one more", pb_utils.Logger.VERBOSE)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.int32))])]
    """
    caplog.set_level("DEBUG", logger="inferd")
    with serve(talks=source) as asked:
        asked.ask("talks", IN=ZERO)
        eventually(lambda: "to stderr" in caplog.text)
        eventually(lambda: "xxx" in caplog.text)
    said = {(r.levelname, r.message) for r in caplog.records if r.name == "inferd.model"}
    assert {
        ("INFO", "model 'talks': hello from print"),
        ("WARNING", "model 'talks': to stderr"),
        ("INFO", "model 'talks': by the logger"),
        ("WARNING", "model 'talks': a warning"),
        ("ERROR", "model 'talks': an error"),
        ("DEBUG", "model 'talks': one more"),
    } <= said
    assert max(len(message) for _, message in said) < 9000


@pytest.mark.slow
def test_a_model_may_fork_and_start_threads_and_leaves_none_behind(serve, eventually):
    source = """
        import os, threading
        class TritonPythonModel:
            def initialize(self, args):
                threading.Thread(target=threading.Event().wait, daemon=False).start()
                self.child = os.fork()
                if not self.child:
                    threading.Event().wait()
            def execute(self, requests):
                pids = np.array([os.getpid(), self.child], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pids)])]
    """
    with serve(forks=source) as asked:
        pid, child = asked.ask("forks", "grpc", IN=ZERO)["OUT"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: is_gone(child))
        again, child = asked.ask("forks", "grpc", IN=ZERO)["OUT"]
        assert again != pid
    eventually(lambda: is_gone(again) and is_gone(child))


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


ODD_PACKETS = {
    "arguments that are missing": (20 + 1, [[], "value", []], True),
    "arguments of another kind": (20 + 1, [[], "load", ["x", None, 5]], True),
    "a text where bytes are": (20 + 1, [[], "load", [1, 2, {"a": 5}]], True),
    "too much nesting": (20 + 1, "[[],'x'," + "[" * 20_000 + "]" * 20_000 + "]", False),
    "a batch that is none": (18, [[], [[0, None, None, None, True, 0]]], True),
    "fewer bytes than the shape takes": (
        18, [[], [[0, [["OUT", "INT32", [10**9], 0, 4]], None, None, True, 0]]], False
    ),
    "a negative shape": (
        18, [[], [[0, [["OUT", "INT32", [-1], 0, -4]], None, None, True, 0]]], False
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", ODD_PACKETS)
def test_a_worker_that_says_what_it_must_not_harms_itself_alone(serve, caplog, what):
    kind, document, is_answered = ODD_PACKETS[what]
    text = document.replace("'", '"') if isinstance(document, str) else json.dumps(document)
    source = f"""
        import os, socket
        from inferd_worker import packet
        class TritonPythonModel:
            def execute(self, requests):
                if requests[0].inputs()[0].as_numpy()[0]:
                    text = {text.encode()!r}
                    size, batch = len(text), {10**12 if is_answered else 1}
                    head = packet.HEADER.pack({kind}, size, packet.INLINE, size, batch, 0, 0)
                    os.write(the_socket(), head + text)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.int32))])]
        def the_socket():
            for fd in os.listdir("/proc/self/fd"):
                path = "/proc/self/fd/" + fd
                if os.path.islink(path) and os.readlink(path).startswith("socket:"):
                    return int(fd)
    """
    with serve(odd=source, good=PID) as asked:
        if is_answered:
            assert asked.ask("odd", "grpc", IN=np.ones(1, np.int32))["OUT"].tolist() == [1]
        else:
            assert "sent what no worker sends" in refused(asked, "odd", IN=np.ones(1, np.int32))
        asked.ask("good", "grpc", IN=ZERO)
        assert asked.ask("odd", "grpc", IN=ZERO)["OUT"].tolist() == [1]
    assert not [r for r in caplog.records if r.name == "asyncio"]


SAYINGS = {
    "half a character": ("raise ValueError(chr(0xD800) + ' name')", "ValueError: ? name"),
    "a number of a parameter that is none": (
        "return [pb_utils.InferenceResponse([], parameters={'a': float('nan')})]",
        "parameter 'a' is nan, no finite number",
    ),
    "a number of a parameter that is too far away": (
        "return [pb_utils.InferenceResponse([], parameters={'a': float('-inf')})]",
        "parameter 'a' is -inf, no finite number",
    ),
    "a parameter beyond 64 bits": (
        "return [pb_utils.InferenceResponse([], parameters={'a': 1 << 70})]",
        "expected a 64-bit number",
    ),
    "half a character of a text": (
        "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([chr(0xD800)]))])]",
        "tensor 'OUT' cannot be sent: UnicodeEncodeError",
    ),
    "an error that has no text": (
        "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})",
        "model 'odd' failed: Mute (1/model.py, line 7, in execute)",
    ),
}


def test_an_output_of_a_name_that_json_cannot_say_costs_no_worker(serve, caplog):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                odd = pb_utils.Tensor(chr(0xDC80), np.ones(1, np.int32))
                return [pb_utils.InferenceResponse([odd])]
    """
    with serve(odd=source) as asked:
        assert asked.ask("odd", IN=ZERO) == {}
        assert "gave output '?', which its configuration does not have" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("what", SAYINGS)
def test_what_json_cannot_say_costs_no_worker(serve, what):
    statement, expected = SAYINGS[what]
    source = f"""
        class TritonPythonModel:
            def execute(self, requests):
                {statement}
    """
    with serve(odd=source) as asked:
        assert expected in refused(asked, "odd")
        assert expected in refused(asked, "odd", "http")


@pytest.mark.slow
def test_a_text_that_cannot_be_sent_is_told_to_who_waits_for_the_last_answer(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(["\\ud800"]))])
                requests[0].get_response_sender().send(
                    answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    with serve(odd=source) as asked:
        assert "tensor 'OUT' cannot be sent: UnicodeEncodeError" in refused(asked, "odd")


METRICS = {
    "family('a', '', 1).Metric().set(inf)": "a metric cannot set inf, which is no finite number",
    "family('a', None, 1)": "the description of MetricFamily 'a' is None, expected str",
    "family(None, '', 1)": "the name of a MetricFamily is None, expected str",
    "family('b', '', 2).Metric({}, [1, inf, 2])": "'b' has the buckets [1.0, inf, 2.0], expected",
    "family('b', '', 2).Metric({}, [float('nan')])": "'b' has the buckets [nan], expected finite",
    "family('b', '', 2).Metric({}, [inf, 1])": "only the last one may be infinity",
    "family('b', '', 2).Metric({}, [])": "a histogram needs buckets: 'b'",
    "family('c', '', 1).Metric({}, [1])": "only a histogram has buckets, 'c' is none",
}


@pytest.mark.slow
def test_what_a_metric_cannot_take_is_told_and_harms_no_other_metric(serve):
    source = f"""
        from math import inf
        family = pb_utils.MetricFamily
        class TritonPythonModel:
            def execute(self, requests):
                exec({list(METRICS)!r}[requests[0].inputs()[0].as_numpy()[0]])
    """
    with serve(odd=source) as asked:
        for number, expected in enumerate(METRICS.values()):
            assert expected in refused(asked, "odd", IN=np.full(1, number, np.int32))
        url = f"http://127.0.0.1:{asked.server.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert "nv_inference_request_failure" in answer.read().decode()


@pytest.mark.slow
def test_a_gauge_and_the_last_bucket_may_be_infinite(serve):
    source = """
        class TritonPythonModel:
            def initialize(self, args):
                family = pb_utils.MetricFamily(b"far", b"", pb_utils.MetricFamily.GAUGE)
                self.gauge = family.Metric()
                sizes = pb_utils.MetricFamily("sizes", "", pb_utils.MetricFamily.HISTOGRAM)
                self.sizes = sizes.Metric(buckets=np.array([1.0, np.inf]))
            def execute(self, requests):
                self.gauge.increment(1e308)
                self.sizes.observe(5)
                is_far = np.array([self.gauge.value() == float("inf")], np.int32)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", is_far)])]
    """
    with serve(far=source) as asked:
        assert [asked.ask("far", IN=ZERO)["OUT"].tolist() for _ in range(2)] == [[0], [1]]
        url = f"http://127.0.0.1:{asked.server.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
    assert "far +Inf\n" in text
    assert 'sizes_bucket{le="1.0"} 0\nsizes_bucket{le="+Inf"} 2\nsizes_sum 10.0\n' in text


@pytest.mark.slow
def test_a_worker_inherits_no_socket_of_the_server(serve):
    source = """
        import os
        class TritonPythonModel:
            def execute(self, requests):
                links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                         if os.path.exists(f"/proc/self/fd/{fd}")
                         or fd.isdigit() and os.path.islink(f"/proc/self/fd/{fd}")]
                count = sum(link.startswith("socket:") for link in links)
                return [pb_utils.InferenceResponse([
                    pb_utils.Tensor("OUT", np.array([count], np.int32))])]
    """
    with serve(one=source, two=source) as asked:
        assert asked.ask("two", "grpc", IN=ZERO)["OUT"].tolist() == [1]


@pytest.mark.slow
def test_what_finds_no_room_in_the_shared_memory_is_refused(serve):
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                count = int(requests[0].inputs()[0].as_numpy()[0])
                out = pb_utils.Tensor("OUT", np.ones(count, np.int32))
                return [pb_utils.InferenceResponse([out])]
    """
    settings = ("shm-default-byte-size=65536", "shm-growth-limit-byte-size=4000000")
    options = {"backend_config": tuple(f"python,{setting}" for setting in settings)}
    room = "that has 65536, and may grow by 4000000, of which 0 are in use"
    lets = "--backend-config=BACKEND,shm-growth-limit-byte-size=BYTES lets it grow further"
    with serve(options, large=source) as asked:
        told = refused(asked, "large", IN=np.array([2_000_000], np.int32))
        assert "model 'large' failed: execute in 1/model.py, line 6, gave an answer" in told
        for part in (room, "output 'OUT' [2000000] takes 8000000;", lets):
            assert part in told
        told = refused(asked, "large", IN=np.ones(2_000_000, np.int32))
        assert told.startswith("[StatusCode.RESOURCE_EXHAUSTED] model 'large': the inputs are too")
        assert room in told
        assert lets in told
        assert refused(asked, "large", "http", IN=np.ones(2_000_000, np.int32)).startswith("[413]")
        for _ in range(5):
            got = asked.ask("large", "grpc", IN=np.array([900_000], np.int32))["OUT"]
            assert got.sum() == 900_000


@pytest.mark.slow
def test_answers_of_senders_and_parameters_that_find_no_room_are_told(serve):
    sends = """
        class TritonPythonModel:
            def execute(self, requests):
                out = pb_utils.Tensor("OUT", np.ones(2_000_000, np.int32))
                requests[0].get_response_sender().send(pb_utils.InferenceResponse([out]), flags=1)
    """
    has_parameters = """
        class TritonPythonModel:
            def execute(self, requests):
                return [pb_utils.InferenceResponse([], parameters={"a": "b" * 8_000_000})]
    """
    limit = ("python,shm-growth-limit-byte-size=1000000", "python,shm-default-byte-size=65536")
    options = {"backend_config": limit}
    with serve(options, sends=sends, has_parameters=has_parameters) as asked:
        told = refused(asked, "sends", IN=ZERO)
        assert "model 'sends' failed: execute in 1/model.py, line 6, gave an answer too" in told
        assert "output 'OUT' [2000000] takes 8000000; --backend-config" in told
        told = refused(asked, "has_parameters", IN=ZERO)
        assert "are in use; --backend-config=BACKEND,shm-growth-limit" in told


@pytest.mark.slow
@pytest.mark.parametrize("junk", ["os.urandom(300)", "bytes(24)", "b'\\x11' + bytes(23) + b'[]'"])
def test_a_worker_that_says_what_it_must_not_is_replaced(serve, junk):
    source = f"""
        import os
        class TritonPythonModel:
            def execute(self, requests):
                if requests[0].inputs()[0].as_numpy()[0]:
                    for fd in os.listdir("/proc/self/fd"):
                        path = "/proc/self/fd/" + fd
                        if os.path.islink(path) and os.readlink(path).startswith("socket:"):
                            os.write(int(fd), {junk})
                    import threading; threading.Event().wait()
                out = pb_utils.Tensor("OUT", np.ones(1, np.int32))
                return [pb_utils.InferenceResponse([out])]
    """
    with serve(hostile=source) as asked:
        told = refused(asked, "hostile", IN=np.ones(1, np.int32))
        assert (
            "the worker process of model 'hostile' was killed: it sent what no worker sends" in told
        )
        assert asked.ask("hostile", "grpc", IN=ZERO)["OUT"].tolist() == [1]


def is_reaped(pid):
    return not os.path.exists(f"/proc/{pid}")
