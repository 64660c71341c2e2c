import pytest

from inferd.config.options.metrics import MetricsSettings, read_metrics_config
from inferd.errors import InvalidConfig


def test_without_settings_the_defaults_are_tritons():
    assert read_metrics_config(()) == MetricsSettings(
        counter_latencies=True,
        histogram_latencies=False,
        summary_latencies=False,
        phase_histograms=True,
        summary_quantiles=(0.5, 0.9, 0.95, 0.99, 0.999),
    )


@pytest.mark.parametrize(
    "name",
    ["counter_latencies", "histogram_latencies", "summary_latencies", "phase_histograms"],
)
@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), ("1", True)])
def test_a_switch_is_set(name, text, value):
    assert getattr(read_metrics_config([f"{name}={text}"]), name) is value


def test_the_last_of_several_settings_counts():
    settings = read_metrics_config(["summary_latencies=true", "summary_latencies=false"])
    assert settings == MetricsSettings()


@pytest.mark.parametrize(
    ("text", "levels"),
    [("0.5:0.05,0.9:0.01", (0.5, 0.9)), ("0.99", (0.99,)), ("0.9:0.1,0.5:0.1,0.9", (0.5, 0.9))],
)
def test_quantiles_are_reported_in_order_whatever_error_they_may_have(text, levels):
    assert read_metrics_config([f"summary_quantiles={text}"]).summary_quantiles == levels


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("summary_latencies", "expected true or false"),
        ("summary_latencies=yes", "'yes', expected true or false"),
        ("nothing=true", "'nothing=true' is no SETTING=VALUE"),
        ("", "'' is no SETTING=VALUE"),
        ("summary_quantiles=", "expected QUANTILE:ERROR"),
        ("summary_quantiles=0.5:", "expected QUANTILE:ERROR"),
        ("summary_quantiles=1.5:0.1", "expected QUANTILE:ERROR"),
        ("summary_quantiles=nan", "expected QUANTILE:ERROR"),
        ("summary_quantiles=0.5:0.1:0.1", "expected QUANTILE:ERROR"),
    ],
)
def test_what_is_wrong_is_named(text, complaint):
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        read_metrics_config([text])
    assert caught.value.message.startswith("--metrics-config: ")
