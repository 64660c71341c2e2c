import pytest

from inferd.config.options.gpu_limit import read_gpu_limits
from inferd.config.server import ServerConfig
from inferd.config.sources import check_server_config
from inferd.errors import InvalidConfig


def test_each_gpu_has_its_share_and_the_last_word_counts():
    assert read_gpu_limits(["0:0.9", "1:.5", "0:1", "2:0"]) == {0: 1.0, 1: 0.5, 2: 0.0}
    assert read_gpu_limits([]) == {}


@pytest.mark.parametrize(
    "text", ["", "0", "0:", ":0.5", "0:1.1", "0:-1", "0:90%", "a:0.5", "0:.", "0:nan", "0:1e-1"]
)
def test_anything_else_is_refused_at_the_start(text):
    with pytest.raises(InvalidConfig, match=f"limit is '{text}', expected DEVICE:FRACTION"):
        check_server_config(ServerConfig(model_load_gpu_limit=("0:0.5", text)))
