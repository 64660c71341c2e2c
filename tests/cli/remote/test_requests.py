"""What the configuration of a model says."""

import pytest

from inferd.cli.remote.requests import is_batched_model, is_decoupled_model
from inferd.client import Client


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_batches_and_streams_are_known_from_the_configuration(served, protocol):
    url = served.http_url if protocol == "http" else f"grpc://{served.grpc_url}"
    with Client(url) as client:
        assert is_batched_model(client, "rows", "")
        assert not is_batched_model(client, "ints", "")
        assert is_decoupled_model(client, "counted", "")
        assert not is_decoupled_model(client, "rows", "")
        assert not is_batched_model(client, "nobody", "")
