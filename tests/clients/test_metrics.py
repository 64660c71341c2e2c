"""Metrics of a server process, read as Prometheus reads them."""

import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from prometheus_client.parser import text_string_to_metric_families


def scrape(server):
    """Return what /metrics tells of the model add_sub, by the names of samples."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        families = text_string_to_metric_families(answer.read().decode())
        return {
            sample.name.removesuffix("_total"): sample.value
            for family in families
            for sample in family.samples
            if sample.labels.get("model", "add_sub") == "add_sub"
            and sample.labels.get("le", "+Inf") == "+Inf"
        }


@pytest.mark.slow
@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_a_request_moves_the_counters_of_its_model(server, module):
    address = server.http if module is tritonclient.http else server.grpc
    before = scrape(server)
    with module.InferenceServerClient(address) as client:
        data = np.ones((4, 16), np.int32)
        inputs = [module.InferInput(name, data.shape, "INT32") for name in ("INPUT0", "INPUT1")]
        for tensor in inputs:
            tensor.set_data_from_numpy(data)
        client.infer("add_sub", inputs)
    after = scrape(server)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown["nv_inference_request_success"] == 1
    assert grown["nv_inference_count"] == 4
    assert grown["nv_inference_exec_count"] == 1
    assert grown["nv_inference_request_duration_us"] > 0
    assert grown["inferd_request_duration_seconds_count"] == 1
    assert grown["inferd_compute_infer_duration_seconds_bucket"] == 1
    assert "nv_inference_request_failure" not in grown


def test_the_process_that_serves_is_the_one_that_is_told_of(server):
    found = scrape(server)
    assert found["process_resident_memory_bytes"] > 20e6
    assert found["process_open_fds"] > 3
