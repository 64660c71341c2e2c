"""A plan on a machine that cannot run it; test_gpu.py is for one that can."""

import pytest
import tritonclient.grpc
import tritonclient.http


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_a_plan_that_cannot_run_here_is_listed_with_its_reason(tmp_path, serve, example, module):
    version = tmp_path / "engine" / "1"
    version.mkdir(parents=True)
    (version / "model.plan").write_bytes(b"ftrt" + bytes(64))
    (version.parent / "config.pbtxt").write_text('platform: "tensorrt_plan"\n')
    example("to_onnx").export(tmp_path)
    with serve(tmp_path) as server:
        port = server.http_port if module is tritonclient.http else server.grpc_port
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            listed = client.get_model_repository_index()
            entries = listed if isinstance(listed, list) else list(listed.models)
            named = [one if isinstance(one, dict) else as_dict(one) for one in entries]
            [engine] = [one for one in named if one["name"] == "engine"]
            assert engine["state"] == "UNAVAILABLE"
            assert "NVIDIA" in engine["reason"] or "tensorrt" in engine["reason"].lower()
            assert not client.is_model_ready("engine")
            assert client.is_model_ready("digits_onnx")


def as_dict(entry):
    return {"name": entry.name, "state": entry.state, "reason": entry.reason}
