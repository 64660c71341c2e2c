import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferd.observe.family import SAMPLES_IN_ONE_PIECE, Family, escaped, number


def test_a_family_is_written_as_prometheus_reads_it():
    family = Family("a_b", "gauge", "What it is", [("", 1), ('x="y"', 2.5)])
    assert family.text() == ('# HELP a_b What it is\n# TYPE a_b gauge\na_b 1\na_b{x="y"} 2.5\n')


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 1000])
def test_a_family_comes_in_pieces_of_few_samples(count):
    samples = [(f'x="{number}"', number) for number in range(count)]
    pieces = list(Family("a", "gauge", "help", iter(samples)).pieces())
    assert "".join(pieces) == Family("a", "gauge", "help", samples).text()
    assert max(piece.count("\n") for piece in pieces) <= SAMPLES_IN_ONE_PIECE + 1
    assert "".join(pieces).count("a{") == count


@pytest.mark.parametrize("value", ['a "quoted" one', "back\\slash", "two\nlines", 'all\\"\n', "é"])
def test_a_label_may_have_any_value(value):
    family = Family("a", "gauge", "help", [(f'x="{escaped(value)}"', 1)])
    [parsed] = text_string_to_metric_families(family.text())
    assert parsed.samples[0].labels == {"x": value}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64, str(2**64)),
        (0.1, "0.1"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers_keep_all_their_digits(value, text):
    assert number(value) == text
