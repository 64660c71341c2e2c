"""Models that say themselves whether they are ready."""

import urllib.error
import urllib.request

import numpy as np
import pytest
from serving import ONE_CONFIG, parameter

pytestmark = pytest.mark.slow

NUMBERS = np.array([1], np.int32)

SWITCHED = """
    class TritonPythonModel:
        is_on = True
        def execute(self, requests):
            self.is_on = bool(requests[0].inputs()[0].as_numpy()[0])
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.int32))])]
        def is_ready(self):
            return self.is_on
"""

AWAITED = SWITCHED.replace("def is_ready", "async def is_ready")

COROUTINES = AWAITED.replace("def execute", "async def execute")

BESIDE = SWITCHED.replace("def execute", "async def execute")

SAYS = """
    import asyncio, threading
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.int32))])]
        def is_ready(self):
            {}
"""

ODD = {
    "a text": ("return 'yes'", "is_ready returned a str, expected True or False"),
    "nothing": ("pass", "is_ready returned None, expected True or False"),
    "an error": ("raise ValueError('no disk')", "ValueError: no disk"),
    "an exit": ("raise SystemExit", "SystemExit"),
}


def status_of(asked, model, version=""):
    path = f"/v2/models/{model}{version}/ready"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{asked.server.http_port}{path}") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("place", ["worker", "server"])
@pytest.mark.parametrize("source", [SWITCHED, AWAITED, COROUTINES, BESIDE])
def test_a_model_is_as_ready_as_it_says(serve, source, place):
    with serve(m=(source, ONE_CONFIG + parameter("inferd_process", place))) as asked:
        for is_on in (1, 0, 1):
            asked.ask("m", IN=np.array([is_on], np.int32))
            assert asked.grpc.is_model_ready("m") is bool(is_on)
            assert asked.http.is_model_ready("m", "1") is bool(is_on)
            assert status_of(asked, "m") == (200 if is_on else 400)
            assert asked.grpc.is_server_ready() is bool(is_on)
            assert asked.http.is_server_ready() is bool(is_on)


@pytest.mark.parametrize("what", ODD)
def test_a_model_that_cannot_say_is_not_ready_and_serves(serve, caplog, what):
    says, expected = ODD[what]
    with serve(m=SAYS.format(says)) as asked:
        assert asked.http.is_model_ready("m") is False
        assert expected in caplog.text
        assert asked.ask("m", IN=NUMBERS)["OUT"].tolist() == [0]


def test_one_instance_that_is_not_ready_is_enough(serve):
    source = SAYS.format("return self.name.endswith('_0')") + (
        "        def initialize(self, args):\n            self.name = args['model_instance_name']\n"
    )
    with serve(
        one=(source, ONE_CONFIG), two=(source, ONE_CONFIG + "instance_group { count: 2 }\n")
    ) as asked:
        assert asked.http.is_model_ready("one") is True
        assert asked.http.is_model_ready("two") is False


def test_a_model_that_does_not_say_in_five_seconds_is_not_ready(serve):
    with serve(m=SAYS.format("threading.Event().wait()")) as asked:
        assert asked.grpc.is_model_ready("m") is False


LATER = SAYS.format("return self.name.endswith('_0')") + (
    "        def initialize(self, args):\n            self.name = args['model_instance_name']\n"
)
GROUP = "instance_group {{ count: {} {} }}\n"
LIMITED = 'rate_limiter { resources { name: "R" count: 1 } }'


@pytest.mark.parametrize("limiter", ["", LIMITED])
def test_an_instance_that_came_later_is_asked_and_one_that_has_gone_is_not(
    serve, models, eventually, limiter
):
    options = {"rate_limit": "execution_count", "model_control_mode": "explicit"}
    options["load_model"] = ("m",)
    with serve(options, m=(LATER, ONE_CONFIG + GROUP.format(1, limiter))) as asked:
        assert asked.http.is_model_ready("m") is True
        for count, is_ready in ((2, False), (1, True)):
            models().joinpath("m", "config.pbtxt").write_text(
                'backend: "python"\n' + ONE_CONFIG + GROUP.format(count, limiter)
            )
            asked.http.load_model("m")
            eventually(lambda is_ready=is_ready: asked.http.is_model_ready("m") is is_ready)
        assert asked.ask("m", IN=NUMBERS)["OUT"].tolist() == [0]


def test_a_model_with_a_rate_limiter_is_asked(serve):
    source = SAYS.format("return False")
    with serve(
        {"rate_limit": "execution_count"}, m=(source, ONE_CONFIG + GROUP.format(1, LIMITED))
    ) as asked:
        assert asked.http.is_model_ready("m") is False
        assert asked.ask("m", IN=NUMBERS)["OUT"].tolist() == [0]


def test_a_model_that_never_says_whether_it_is_ready_serves(serve):
    with serve(m=SAYS.format("threading.Event().wait()")) as asked:
        assert asked.grpc.is_model_ready("m") is False
        assert asked.ask("m", IN=NUMBERS)["OUT"].tolist() == [0]


def test_a_model_that_says_it_late_is_ready_then(serve, eventually):
    source = """
        import threading
        class TritonPythonModel:
            said = threading.Event()
            def execute(self, requests):
                self.said.set()
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.int32))])]
            def is_ready(self):
                return self.said.wait()
    """
    with serve(m=source) as asked:
        assert asked.grpc.is_model_ready("m") is False
        for _ in range(3):  # the second thread goes on when the first is back
            assert asked.ask("m", IN=NUMBERS)["OUT"].tolist() == [0]
        eventually(lambda: asked.grpc.is_model_ready("m"))
