"""More processes of a model in Python, and fewer, while it is asked."""

import os
import threading

import numpy as np
import pytest
from serving import ONE_CONFIG

PID = """
    import os
    import threading
    class TritonPythonModel:
        def execute(self, requests):
            threading.Event().wait(0.005)
            pid = np.array([os.getpid()], np.int32)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pid)]) for _ in requests]
"""


def config_of(count):
    return f"{ONE_CONFIG} instance_group {{ name: 'g' kind: KIND_CPU count: {count} }}"


@pytest.mark.slow
def test_processes_come_and_go_and_no_request_fails(serve, eventually, tmp_path):
    options = {"model_control_mode": "explicit", "load_model": ("*",)}
    file = tmp_path / "models" / "pid" / "config.pbtxt"
    with serve(options, pid=(PID, config_of(1))) as asked:
        answers, failures, is_over = [], [], threading.Event()

        def client():
            while not is_over.is_set():
                try:
                    answers.append(
                        int(asked.ask("pid", "grpc", IN=np.zeros(1, np.int32))["OUT"][0])
                    )
                except Exception as error:  # noqa: BLE001  whatever it is
                    failures.append(error)
                    return

        def latest():
            """Return the processes that give the next answers."""
            before = len(answers)
            eventually(lambda: failures or len(answers) >= before + 40)
            return set(answers[before + 8 :])

        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        try:
            assert len(latest()) == 1
            for count in (3, 2, 4, 1):
                file.write_text('backend: "python"\n' + config_of(count))
                asked.http.load_model("pid")
                eventually(lambda count=count: failures or len(latest()) == count)
        finally:
            is_over.set()
            for one in clients:
                one.join()
        assert failures == []
        gone = set(answers) - set(answers[-1:])
        assert len(gone) >= 3
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in gone))
        [row] = asked.server.engine.whole.statistics("pid")
        assert row.inference_stats.success.count == len(answers)
