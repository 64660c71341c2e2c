"""What auto_complete_config may not do: ask the server, which waits for it, or contradict."""

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


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["", "decoupled: false", "decoupled: true"])
@pytest.mark.parametrize("said", [True, False])
def test_a_transaction_policy_may_not_contradict_that_of_the_configuration(serve, policy, said):
    call = f"config.set_model_transaction_policy({{'decoupled': {said}}})"
    config = f"{ADD_SUB_CONFIG} model_transaction_policy {{ {policy} }}"
    with serve({"exit_on_error": False}, m=(ASKS.format(call=call), config)) as asked:
        [row] = asked.http.get_model_repository_index()
        if said is (policy == "decoupled: true"):
            assert row["state"] == "READY"
        else:
            assert row["state"] == "UNAVAILABLE"
            assert f"has decoupled {not said}, the model says {said}" in row["reason"]
