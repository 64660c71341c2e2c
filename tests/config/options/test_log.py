import pytest

from inferd.config.options.log import PayloadPolicy, PayloadSettings, read_payload_config
from inferd.errors import InvalidConfig


def test_without_settings_all_payloads_are_logged():
    assert read_payload_config(()) == PayloadSettings()
    assert read_payload_config(()).policy == PayloadPolicy(1.0, "all", 1 << 20)


def test_a_model_has_what_was_set_for_it_and_else_what_holds_for_all():
    found = read_payload_config(
        ["sample=0.01", "a,mode=request", "a,max-bytes=5000", "b,c,sample=1", "mode=response"]
    )
    assert found.policy == PayloadPolicy(0.01, "response")
    assert found.models == {
        "a": PayloadPolicy(0.01, "request", 5000),
        "b,c": PayloadPolicy(1.0, "response"),
    }


def test_the_rest_holds_for_the_whole_log():
    texts = ["buffer-bytes=1000", "file-bytes=2000", "file-count=1"]
    texts += ["service=s", "namespace=n", "source=http://a=b"]
    assert read_payload_config(texts) == PayloadSettings(
        buffer_bytes=1000,
        file_bytes=2000,
        file_count=1,
        service="s",
        namespace="n",
        source="http://a=b",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sample", r"\[MODEL,\]SETTING=VALUE"),
        ("sample=2", "a number from 0 to 1"),
        ("sample=-0.1", "a number from 0 to 1"),
        ("sample=nan", "a number from 0 to 1"),
        ("sample=1%", "a number from 0 to 1"),
        ("mode=both", "all or request or response"),
        ("max-bytes=0", "a whole number from 1000 on"),
        ("max-bytes=1e6", "a whole number from 1000 on"),
        ("file-count=0", "a whole number from 1 on"),
        ("m,file-count=2", "one of the settings sample, mode, .*; the first 3 of a model"),
        ("speed=1", "one of the settings sample, mode"),
        ("service=", "a text"),
        ("source=a\nb", "a text"),
        ("key-file=k", "a cert-file as well"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_expected(text, expected):
    with pytest.raises(InvalidConfig, match=rf"(?s)^--payload-log-config .*: expected {expected}"):
        read_payload_config([text])
