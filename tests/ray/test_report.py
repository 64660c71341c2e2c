from inferd.ray.replica import ReplicaLoad, read_load

TEXT = """\
# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a",version="1"} 40
nv_inference_request_success{model="b} c",version="1"} 2
nv_inference_request_duration_us{model="a",version="1"} 1.5e+06
nv_inference_request_duration_us{model="b} c",version="1"} 10
nv_inference_request_failure{model="a",version="1",reason="OTHER"} 9
inferd_inflight_requests 3
process_cpu_seconds_total 12.25
"""


def test_the_load_is_the_sum_over_all_models():
    expected = ReplicaLoad(inflight=3, request_count=42, duration_us=1_500_010, cpu_s=12.25)
    assert read_load(TEXT) == expected


def test_a_server_without_requests_has_no_load():
    assert read_load("") == ReplicaLoad()
