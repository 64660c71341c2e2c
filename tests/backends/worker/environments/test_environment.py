import sys
from pathlib import Path

from inferd.backends.worker.environments.environment import Environment


def test_a_worker_has_the_server_s_variables_but_its_own_and_secrets(monkeypatch):
    monkeypatch.setenv("INFERD_API_KEYS", "secret")
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    variables = Environment(variables={"LC_TIME": "de", "X": "1"}).all_variables()
    assert not any(name.startswith(("INFERD_", "TRITON_CLOUD_CREDENTIAL")) for name in variables)
    assert (variables["LC_TIME"], variables["X"]) == ("de", "1")
    assert variables["PYTHONUNBUFFERED"] == "1"


def test_without_more_it_is_this_interpreter():
    assert Environment().python == Path(sys.executable)
