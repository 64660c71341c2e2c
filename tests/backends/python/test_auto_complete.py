"""What auto_complete_config may not do: the server that waits for it answers nothing."""

import pytest
from serving import ADD_SUB_CONFIG

ASKS = """
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            {call}
            return config

        def execute(self, requests):
            return [pb_utils.InferenceResponse([]) for _ in requests]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        "pb_utils.load_model('other')",
        "pb_utils.unload_model('other')",
        "pb_utils.is_model_ready('other')",
        "pb_utils.MetricFamily(name='n', description='d', kind=pb_utils.MetricFamily.COUNTER)",
    ],
)
def test_asking_the_server_is_refused(serve, call):
    options = {"exit_on_error": False, "model_load_timeout_secs": 60}
    with serve(options, m=(ASKS.format(call=call), ADD_SUB_CONFIG)) as asked:
        [row] = asked.http.get_model_repository_index()
        assert row["state"] == "UNAVAILABLE"
        assert "auto_complete_config cannot ask the server for anything" in row["reason"]
