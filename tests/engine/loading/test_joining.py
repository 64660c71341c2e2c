import logging
from dataclasses import replace

import pytest

from inferd.config.defaults import normalised
from inferd.config.model import (
    BatchInput,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
)
from inferd.core.rows import DEPENDENT, INDEPENDENT, UNKNOWN, Joining, Verdict
from inferd.engine.loading.joining import joining_of, tell_joining
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

APART = Verdict(INDEPENDENT, "each row depends on its own inputs alone")
MIXED = Verdict(DEPENDENT, "CumSum 'total' adds rows up")


def config_of(batching=None, **more):
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("A", DataType.INT8, (1,)),),
        output=(ModelOutput("Y", DataType.INT8, (1,)),),
        dynamic_batching=batching,
    )
    return normalised(replace(config, **more), "m")


def state_of(config, verdict, *, joins=True):
    return joining_of(config, verdict, joins=joins).state


UNASKED = config_of(DynamicBatching())
SIZES = config_of(DynamicBatching(preferred_batch_size=(4,)))
DELAY = config_of(DynamicBatching(max_queue_delay_microseconds=100))


@pytest.mark.parametrize("config", [UNASKED, config_of(DynamicBatching(priority_levels=2))])
def test_without_numbers_only_independent_rows_are_joined(config):
    assert joining_of(config, APART, joins=True) == Joining("joined", APART.reason)
    assert joining_of(config, MIXED, joins=True) == Joining("alone", MIXED.reason)


def test_of_a_model_of_which_nothing_is_known_answers_are_compared_first():
    joining = joining_of(UNASKED, UNKNOWN, joins=True)
    assert joining == Joining("compared", UNKNOWN.reason)
    assert not joining.never_joins


@pytest.mark.parametrize("config", [SIZES, DELAY])
@pytest.mark.parametrize("verdict", [APART, UNKNOWN, MIXED])
def test_numbers_ask_for_joining_whatever_is_known(config, verdict):
    joining = joining_of(config, verdict, joins=True)
    assert joining.state == "joined"
    assert joining.is_risky is (verdict is MIXED)
    assert ("CumSum" in joining.reason) is (verdict is MIXED)


@pytest.mark.parametrize("config", [UNASKED, SIZES])
@pytest.mark.parametrize("verdict", [APART, UNKNOWN, MIXED])
def test_a_parameter_decides_before_anything_else(config, verdict):
    never = replace(config, parameters={"inferd_join": "never"})
    always = replace(config, parameters={"inferd_join": "always"})
    assert state_of(never, verdict) == "alone"
    assert state_of(always, verdict) == "joined"
    assert joining_of(always, verdict, joins=True).is_risky is (verdict is MIXED)


def test_the_parameter_may_say_that_nothing_is_wanted():
    for text in ("", "auto"):
        config = replace(UNASKED, parameters={"inferd_join": text})
        assert state_of(config, MIXED) == "alone"


def test_scales_of_all_rows_are_accepted_by_a_parameter():
    quantised = replace(UNASKED, parameters={"inferd_join": "quantised"})
    scales = Verdict(DEPENDENT, MIXED.reason, is_quantised=True)
    assert state_of(UNASKED, scales) == "alone"
    assert state_of(quantised, scales) == "joined"
    assert "CumSum" in joining_of(quantised, scales, joins=True).reason
    assert not joining_of(quantised, scales, joins=True).is_risky
    assert state_of(quantised, MIXED) == "alone"
    assert state_of(quantised, UNKNOWN) == "compared"
    assert state_of(quantised, APART) == "joined"


def test_another_word_is_refused():
    config = replace(UNASKED, parameters={"inferd_join": "no" * 99})
    with pytest.raises(
        InvalidConfig, match=r"'(no){50}', expected auto, quantised, always or never"
    ):
        joining_of(config, APART, joins=True)


def test_a_model_that_gets_several_requests_keeps_them_apart_itself():
    assert state_of(UNASKED, MIXED, joins=False) == "joined"


def test_ragged_inputs_are_joined_as_the_configuration_says():
    counts = BatchInput("BATCH_ELEMENT_COUNT", ("N",), DataType.INT32, ("A",))
    assert state_of(replace(UNASKED, batch_input=(counts,)), MIXED) == "joined"


@pytest.mark.parametrize(
    "config",
    [
        config_of(),
        config_of(DynamicBatching(), max_batch_size=0),
        config_of(DynamicBatching(), max_batch_size=1),
        config_of(DynamicBatching(), decoupled=True),
        config_of(sequence_batching=SequenceBatching()),
    ],
)
def test_where_nothing_can_be_joined_there_is_nothing_to_say(config, caplog):
    caplog.set_level(logging.INFO)
    joining = joining_of(config, MIXED, joins=True)
    assert joining.reason == ""
    assert not joining.never_joins
    tell_joining(config, 1, joining)
    assert not caplog.records


@pytest.mark.parametrize(
    ("config", "verdict", "level", "words"),
    [
        (UNASKED, APART, "INFO", "requests are joined: each row depends on its own inputs alone"),
        (
            UNASKED,
            UNKNOWN,
            "INFO",
            "alone until comparisons have shown that joining changes no answer",
        ),
        (UNASKED, MIXED, "INFO", "runs alone: CumSum 'total' adds rows up (to have requests"),
        (SIZES, MIXED, "WARNING", "one client's data may change the answers to others"),
    ],
)
def test_the_log_says_what_was_decided_and_why(config, verdict, level, words, caplog):
    caplog.set_level(logging.INFO)
    tell_joining(config, 3, joining_of(config, verdict, joins=True))
    [record] = caplog.records
    assert record.levelname == level
    assert "model 'm' version 3: " in record.message
    assert verdict.reason in record.message
    assert words in record.message


def test_who_turned_it_off_is_not_told_how_to_turn_it_on(caplog):
    caplog.set_level(logging.INFO)
    config = replace(UNASKED, parameters={"inferd_join": "never"})
    tell_joining(config, 1, joining_of(config, APART, joins=True))
    [record] = caplog.records
    assert record.message.endswith("each request runs alone: parameter inferd_join is never")
