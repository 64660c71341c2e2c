"""What the parameters of a model's configuration mean, and which texts are refused."""

import pytest

from inferd.config.model import ModelConfig
from inferd.config.parameter import MAX_SHOWN, is_on, number, texts, whole_number
from inferd.errors import InvalidConfig


def config(**parameters):
    return ModelConfig(name="m", parameters=parameters)


@pytest.mark.parametrize("given", [{}, {"k": ""}])
def test_what_is_not_given_is_the_default(given):
    assert whole_number(config(**given), "k", 7, 0, 1) == 7
    assert number(config(**given), "k") == 0
    assert is_on(config(**given), "k") is False
    assert texts(config(**given), "k") == []
    assert is_on(config(**given), "k", default=True) is True


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("9", 9), ("0009", 9)])
def test_a_whole_number_is_read(text, value):
    assert whole_number(config(k=text), "k", 5, 1, 9) == value


@pytest.mark.parametrize(
    "text", ["0", "10", "-1", "+1", "1.0", "1e0", " 1", "1_0", "x", "²", "٣", "1" * 10_000]
)
def test_no_whole_number_within_its_bounds_is_refused(text):
    expected = r"model 'm': parameter k is '.*', expected a whole number from 1 to 9$"
    with pytest.raises(InvalidConfig, match=expected) as caught:
        whole_number(config(k=text), "k", 5, 1, 9)
    assert len(caught.value.message) < MAX_SHOWN + 100


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e3", 1000), ("0", 0)])
def test_a_number_is_read(text, value):
    assert number(config(k=text), "k") == value


@pytest.mark.parametrize("text", ["-0.1", "nan", "inf", "1e300", "x", "0x1", "1" * 10_000])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(
        InvalidConfig, match=r"parameter k is '.*', expected a number of 0 or more$"
    ):
        number(config(k=text), "k")


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "Yes"])
def test_what_says_yes_is_on(text):
    assert is_on(config(k=text), "k") is True
    assert is_on(config(k=text), "k", default=True) is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no"])
def test_what_says_no_is_off(text):
    assert is_on(config(k=text), "k", default=True) is False


@pytest.mark.parametrize("text", ["on", "2", "truth", "x" * 10_000])
def test_what_says_neither_is_refused(text):
    with pytest.raises(
        InvalidConfig, match=r"parameter k is '.*', expected true or false$"
    ) as reported:
        is_on(config(k=text), "k")
    assert len(reported.value.message) < MAX_SHOWN + 100


def test_texts_are_a_json_array():
    assert texts(config(k='["a", "b c"]'), "k") == ["a", "b c"]
    for text in ("a,b", "[1]", '{"a": 1}'):
        with pytest.raises(InvalidConfig, match=r"expected a JSON array of texts$"):
            texts(config(k=text), "k")
