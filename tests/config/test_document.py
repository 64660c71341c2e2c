"""Every field of a configuration with every wrong kind of value: who complains, and how."""

import json

import pytest

from inferd.config.document import MAX_SHOWN, checked_document
from inferd.config.pbtxt import parse_json
from inferd.config.proto import MODEL_CONFIG, config_pool
from inferd.errors import InvalidConfig

ROOT = config_pool().FindMessageTypeByName(MODEL_CONFIG)
WRONG = [5, -1, 2**70, 1.5, 1e300, "x", "", "1e5", "é", True, [], [None], ["x"], [[1]], [{}], [1.5]]
WRONG += [{}, {"x": 1}, {"1": {}}]


def document(way, name, value):
    inner = {name: value}
    for outer, wrap in reversed(way):
        inner = {outer: {"map": {"1": inner}, "list": [inner], "one": inner}[wrap]}
    return inner


def path(way, name):
    ends = {"map": "['1']", "list": "[0]", "one": ""}
    return ".".join([*(outer + ends[wrap] for outer, wrap in way), name])


def test_a_value_of_a_wrong_kind_is_reported_with_field_found_and_expected(config_fields):
    refused = 0
    for field, way in config_fields:
        for value in WRONG:
            try:
                checked_document(document(way, field.name, value), ROOT)
            except InvalidConfig as error:
                refused += 1
                place, _, rest = error.message.partition(": expected ")
                assert path(way, field.name) in place.removeprefix("a key of ")
                expected, _, got = rest.rpartition(", got ")
                assert expected and got
    assert refused > 1000


def test_what_is_let_through_the_reader_takes_or_refuses_for_another_reason(config_fields):
    """Not for its kind: what the reader says of that is about itself."""
    others = ("has no field", "has no data_type", "is given", "cannot be given beside")
    for field, way in config_fields:
        for value in WRONG:
            given = document(way, field.name, value)
            try:
                checked_document(given, ROOT)
                parse_json(json.dumps(given), "config")
            except InvalidConfig as error:
                reported = error.message
                assert ", got " in reported or any(words in reported for words in others), reported


@pytest.mark.parametrize(
    "sound",
    [
        {"max_batch_size": "8"},
        {"max_batch_size": 8.0},
        {"maxBatchSize": 8, "name": None, "input": None},
        {"max_batch_size": -1},
        {"parameters": {"a": {"string_value": "b"}}},
        {"instance_group": [{"kind": "kind_cpu", "gpus": ["0", 1]}, {"kind": 2}]},
        {"dynamic_batching": {"priority_queue_policy": {"1": {"max_queue_size": 3}}}},
        {"sequence_batching": {"direct": {"minimum_slot_utilization": "0.5"}}},
        {"model_metrics": {"metric_control": [{"histogram_options": {"buckets": [1, "NaN"]}}]}},
        {"unknown": [[{}]]},
    ],
)
def test_every_spelling_of_a_right_value_is_let_through(sound):
    checked_document(sound, ROOT)


@pytest.mark.parametrize(
    ("unsound", "complaint"),
    [
        ({"max_batch_size": 2**31}, "max_batch_size: expected a whole number from -2147483648 to "),
        ({"max_batch_size": True}, "got true"),
        ({"max_batch_size": "1" * 5000}, "max_batch_size: expected a whole number"),
        (
            {"input": [{"dims": ["\N{FULLWIDTH DIGIT ONE}"]}]},
            "input[0].dims[0]: expected a whole number",
        ),
        ({"input": [{}, {"data_type": 99}]}, "input[1].data_type: expected one of TYPE_INVALID, "),
        ({"dynamic_batching": []}, "dynamic_batching: expected an object, got a list"),
        ({"dynamic_batching": {"priority_queue_policy": {"x": {}}}}, "a key of dynamic_batching."),
        ({"name": "n", "backend": [1]}, "backend: expected a text, got a list"),
        ({"version_policy": {"specific": {"versions": [None]}}}, "versions[0]: expected a whole "),
    ],
)
def test_the_complaint_leads_to_the_place(unsound, complaint):
    with pytest.raises(InvalidConfig) as refused:
        checked_document(unsound, ROOT)
    assert complaint in refused.value.message


def test_a_long_text_is_not_repeated():
    with pytest.raises(InvalidConfig) as refused:
        checked_document({"max_batch_size": "x" * 10_000}, ROOT)
    assert len(refused.value.message) < 100 + MAX_SHOWN
