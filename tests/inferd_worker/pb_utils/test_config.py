"""What auto_complete_config may change of a configuration, and the types it names."""

import json

import pytest

from inferd_worker.pb_utils.config import ModelConfig, triton_string_to_numpy


@pytest.mark.parametrize("configured", [True, False])
def test_whether_a_model_is_decoupled_cannot_be_changed(configured):
    document = {"name": "m", "model_transaction_policy": {"decoupled": configured}}
    config = ModelConfig(json.dumps(document))
    config.set_model_transaction_policy({"decoupled": configured})
    with pytest.raises(ValueError, match=f"has decoupled {configured}, the model says"):
        config.set_model_transaction_policy({"decoupled": not configured})
    assert config.as_dict() == document


def test_a_policy_without_keys_says_nothing():
    config = ModelConfig("{}")
    config.set_model_transaction_policy({})
    assert config.as_dict() == {"model_transaction_policy": {}}
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict() == {"model_transaction_policy": {"decoupled": True}}


def test_a_policy_has_no_other_keys():
    with pytest.raises(ValueError, match="alone, got \\['other'\\]"):
        ModelConfig("{}").set_model_transaction_policy({"decoupled": True, "other": 1})


def test_the_type_of_bool_is_that_of_python():
    assert triton_string_to_numpy("TYPE_BOOL") is bool
