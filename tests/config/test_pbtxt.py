"""ModelConfig as protobuf text and as JSON."""

import json
import math
import re
from dataclasses import replace

import orjson
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.config.message import read_message
from inferd.config.model import (
    Control,
    ControlInput,
    InstanceGroup,
    MetricControl,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    VersionPolicy,
)
from inferd.config.pbtxt import decode_pbtxt, parse_json, parse_pbtxt, to_json, to_pbtxt
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

X = ModelInput("x", DataType.FP32, (1, -1))
Y = ModelInput("y", DataType.INT8, (2,))

ACCEPTED = {
    "a list of messages": (
        "input: [{name: 'x' data_type: TYPE_FP32 dims: [1, -1]}, "
        "{name: 'y', data_type: TYPE_INT8; dims: 2}]",
        ModelConfig("", input=(X, Y)),
    ),
    "repeated blocks": (
        "input {name: 'x' data_type: TYPE_FP32 dims: 1 dims: -1} "
        "input {name: 'y' data_type: TYPE_INT8 dims: [2]}",
        ModelConfig("", input=(X, Y)),
    ),
    "commas and semicolons": (
        "name: 'm', backend: 'b'; max_batch_size: 3",
        ModelConfig("m", backend="b", max_batch_size=3),
    ),
    "comments": ("# one\nname: 'm' # two\n", ModelConfig("m")),
    "adjacent strings": ("name: \"a\" 'b'", ModelConfig("ab")),
    "angle brackets": (
        "instance_group < kind: KIND_CPU >",
        ModelConfig("", instance_group=(InstanceGroup(kind="KIND_CPU"),)),
    ),
    "enum by number": (
        "output {name: 'x' data_type: 11 dims: 1}",
        ModelConfig("", output=(ModelOutput("x", DataType.FP32, (1,)),)),
    ),
    "repeated map key": (
        "parameters {key: 'a' value {string_value: '1'}} "
        "parameters {key: 'a' value {string_value: '2'}}",
        ModelConfig("", parameters={"a": "2"}),
    ),
    "map as a list": (
        "parameters [{key: 'a' value: {string_value: '1'}}, {key: 'b' value {}}]",
        ModelConfig("", parameters={"a": "1", "b": ""}),
    ),
    "CRLF": ("name: 'm'\r\nmax_batch_size: 1\r\n", ModelConfig("m", max_batch_size=1)),
    "nothing": ("", ModelConfig("")),
}


@pytest.mark.parametrize(("text", "config"), ACCEPTED.values(), ids=ACCEPTED)
def test_text_is_read_as_triton_reads_it(text, config):
    assert parse_pbtxt(text, "config.pbtxt") == config


@pytest.mark.parametrize("word", ["true", "True", "t", "1"])
def test_true_has_four_spellings(word):
    config = parse_pbtxt(f"model_transaction_policy {{ decoupled: {word} }}", "config.pbtxt")
    assert config.decoupled


REFUSED = {
    "no comma in a list": (
        "instance_group [ {} {} ]",
        '1:21: expected "," here',
    ),
    "trailing comma after a message": ("input [ {}, ]", '1:13: expected "{" here'),
    "trailing comma after a number": (
        "dynamic_batching {\n preferred_batch_size: [2,]\n}",
        "2:27: preferred_batch_size: expected a whole number, got ]",
    ),
    "slash comment": ("// no", "1:1: expected the name of a field here, got /"),
    "yes": (
        "response_cache { enable: yes }",
        "1:26: enable: expected true or false",
    ),
    "lower-case enum": (
        "instance_group { kind: kind_cpu }",
        "1:24: kind: 'kind_cpu' is no ModelInstanceGroup.Kind, "
        "expected one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL",
    ),
    "number as text": (
        'name: "m"\nmax_batch_size: "4"',
        '2:17: max_batch_size: expected a whole number, got "4"',
    ),
    "number too large": (
        "max_batch_size: 3000000000",
        "1:17: max_batch_size: 3000000000 is out of range",
    ),
    "number of thousands of digits": (
        "max_batch_size: " + "1" * 5000,
        f"1:17: max_batch_size: expected a whole number, got {'1' * 60}",
    ),
    "negative unsigned": (
        "dynamic_batching { priority_levels: -1 }",
        "1:37: priority_levels: -1 is out of range",
    ),
    "misspelt field": (
        "max_batchsize: 4",
        "1:1: ModelConfig has no field 'max_batchsize'; did you mean 'max_batch_size'?",
    ),
    "unknown field": (
        "response_cache { zzz: 1 }",
        "1:18: ModelResponseCache has no field 'zzz'; it has enable",
    ),
    "scalar twice": ('name: "a"\nname: "b"', "2:7: name is given twice"),
    "two schedulers": (
        "dynamic_batching {}\nsequence_batching {}",
        "2:1: sequence_batching cannot be given beside dynamic_batching",
    ),
    "byte order mark": (
        '\ufeffname: "m"',
        "1:1: the file begins with a byte order mark; save it as UTF-8 without one",
    ),
    "open string": ("name: 'a", "1:7: name: the text has no quote at its end"),
    "open block": ("input { name: 'a'", '1:15: expected "}" here'),
    "value without a field": ("4", "1:1: ModelConfig has no field '4'; it has "),
}


@pytest.mark.parametrize(("text", "complaint"), REFUSED.values(), ids=REFUSED)
def test_text_is_refused_with_line_column_and_field(text, complaint):
    with pytest.raises(InvalidConfig) as refused:
        parse_pbtxt(text, "m/config.pbtxt")
    assert refused.value.message.startswith(f"m/config.pbtxt:{complaint}")


def test_a_tensor_without_datatype_is_refused_with_the_file():
    with pytest.raises(InvalidConfig, match=r"^m/config.pbtxt: input 'x' has no data_type$"):
        parse_pbtxt("input { name: 'x' }", "m/config.pbtxt")


@pytest.mark.parametrize("choice", range(3))
def test_a_config_that_says_everything_survives_text_and_json(full_message, choice):
    message = full_message(choice)
    config = read_message(message)
    assert parse_pbtxt(text_format.MessageToString(message), "") == config
    in_json = replace(config, is_unbatched=not config.max_batch_size)  # JSON has every number
    assert parse_json(orjson.dumps(to_json(config)), "") == in_json


@settings(max_examples=25)
@given(seed=st.integers(0))
def test_any_config_survives_text_and_json(random_message, seed):
    message = random_message(seed)
    config = read_message(message)
    assert parse_pbtxt(text_format.MessageToString(message), "") == config
    in_json = replace(config, is_unbatched=not config.max_batch_size)  # JSON has every number
    assert parse_json(orjson.dumps(to_json(config)), "") == in_json


@settings(max_examples=200)
@given(text=st.text(alphabet=st.sampled_from(" \n{}[]<>:,;'\"\\-0.1axinputdmsTYPE_#/\0ä")))
def test_no_text_makes_anything_but_a_config_or_a_complaint(text):
    assert isinstance(outcome(parse_pbtxt, text), ModelConfig | InvalidConfig)


NAMES = [
    *("name", "input", "dims", "data_type", "reshape", "shape", "parameters", "string_value"),
    *("dynamic_batching", "priority_queue_policy", "1", "timeout_action", "max_batch_size"),
    *("sequence_batching", "control_input", "control", "fp32_false_true", "optional"),
]
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "1", "DELAY"])
)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    document=st.recursive(
        LEAVES, lambda deep: st.lists(deep) | st.dictionaries(st.sampled_from(NAMES), deep)
    )
)
def test_no_json_makes_anything_but_a_config_or_a_complaint(document):
    text = json.dumps(document)
    assert isinstance(outcome(parse_json, text), ModelConfig | InvalidConfig)


def outcome(parse, text):
    try:
        return parse(text, "f")
    except InvalidConfig as error:
        return error


@pytest.mark.parametrize(
    ("text", "is_unbatched"),
    [
        ("", False),
        ("max_batch_size: 0", True),
        ("max_batch_size : 0", True),
        ("name: 'm' max_batch_size: 8", False),
        ("# max_batch_size: 0", False),
        ("name: 'm' # max_batch_size: 0\nplatform: 'x'", False),
        ("name: 'max_batch_size: 0'", False),
        ("name: 'm\\'' max_batch_size: 0", True),
        ("parameters { key: 'max_batch_size' value: { string_value: '0' } }", False),
        ("model_warmup { name: 'w' batch_size: 0 }", False),
    ],
)
def test_a_batch_size_of_0_that_is_written_is_told_from_none(text, is_unbatched):
    assert parse_pbtxt(text, "c").is_unbatched is is_unbatched


@pytest.mark.parametrize(
    ("document", "is_unbatched"),
    [
        ({}, False),
        ({"max_batch_size": 0}, True),
        ({"maxBatchSize": 0}, True),
        ({"max_batch_size": "0"}, True),
        ({"max_batch_size": None}, False),
        ({"max_batch_size": 8}, False),
        ({"name": "max_batch_size"}, False),
    ],
)
def test_so_it_is_in_json(document, is_unbatched):
    assert parse_json(json.dumps(document), "c").is_unbatched is is_unbatched


def test_the_fields_that_a_file_has_are_told_from_those_that_are_filled_in():
    text = 'name: "m" max_batch_size: 0 input { name: "x" data_type: TYPE_FP32 dims: 2 } '
    text += "optimization {}"
    names = {"name", "max_batch_size", "input", "optimization"}
    assert parse_pbtxt(text, "c").written == names
    assert parse_pbtxt("", "c").written == set()
    assert parse_json('{"name": "m", "maxBatchSize": 2}', "c").written == {"name", "max_batch_size"}


def test_json_fills_in_defaults_and_leaves_unset_messages_out():
    document = to_json(ModelConfig("m", input=(X,), decoupled=True))
    assert document["max_batch_size"] == 0
    assert document["output"] == []
    assert document["parameters"] == {}
    assert document["model_transaction_policy"] == {"decoupled": True}
    assert document["input"] == [
        {
            "name": "x",
            "data_type": "TYPE_FP32",
            "format": "FORMAT_NONE",
            "dims": [1, -1],
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ]
    assert document.keys().isdisjoint({"dynamic_batching", "version_policy", "optimization"})


def test_json_has_whole_numbers_and_short_floats():
    control = Control(kind="CONTROL_SEQUENCE_END", fp32_false_true=(0.0, 0.1))
    config = ModelConfig(
        "m",
        version_policy=VersionPolicy(specific=(2**63 - 1,)),
        sequence_batching=SequenceBatching(control_input=(ControlInput("c", (control,)),)),
    )
    document = to_json(config)
    assert document["version_policy"] == {"specific": {"versions": [2**63 - 1]}}
    [control_input] = document["sequence_batching"]["control_input"]
    assert control_input["control"][0]["fp32_false_true"] == [0.0, 0.1]


FLOAT_MAX = 3.4028234663852886e38
"""The largest 32-bit float; its shortest text, 3.4028235e38, stands for more."""


def test_json_of_floats_that_are_no_numbers_or_the_largest_is_read_again():
    edges = (math.inf, -math.inf, FLOAT_MAX, -FLOAT_MAX)
    control = Control(kind="CONTROL_SEQUENCE_END", fp32_false_true=edges)
    config = ModelConfig(
        "m",
        sequence_batching=SequenceBatching(control_input=(ControlInput("c", (control,)),)),
        model_metrics=(MetricControl("family", histogram_options=(1.5, math.inf)),),
    )
    document = to_json(config)
    [control_input] = document["sequence_batching"]["control_input"]
    assert control_input["control"][0]["fp32_false_true"] == [
        *("Infinity", "-Infinity"),
        *(FLOAT_MAX, -FLOAT_MAX),
    ]
    assert parse_json(orjson.dumps(document), "config") == replace(config, is_unbatched=True)


def test_json_of_a_float_that_is_no_number_is_its_name():
    config = ModelConfig("m", model_metrics=(MetricControl("family", (math.nan,)),))
    [control] = to_json(config)["model_metrics"]["metric_control"]
    assert control["histogram_options"] == {"buckets": ["NaN"]}


@pytest.mark.parametrize(
    "text",
    [
        '{"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1, -1]}]}',
        '{"input": [{"name": "x", "dataType": "type_fp32", "dims": ["1", "-1"]}]}',
        b'{"input": [{"name": "x", "data_type": 11, "dims": [1, -1]}], "name": null}',
    ],
)
def test_json_is_taken_in_each_of_its_spellings(text):
    assert parse_json(text, "config") == ModelConfig("", input=(X,))


def test_json_enums_are_taken_in_any_case_inside_maps():
    text = '{"dynamic_batching": {"priority_queue_policy": {"1": {"timeout_action": "delay"}}}}'
    config = parse_json(text, "config")
    assert config.dynamic_batching.priority_queue_policy[1].timeout_action == "DELAY"


JSON_REFUSED = {
    "no JSON": ("{", ":1:2: not JSON: unexpected end of data"),
    "too deep": ("[" * 5000, ":1:1026: not JSON: depth limit exceeded"),
    "deep inside": (
        '{"input":' + "[" * 1000 + "]" * 1000 + "}",
        ": input[0]: expected an object, got a list",
    ),
    "no object": ("[]", ": expected a JSON object"),
    "unknown field": ('{"nam": 1}', ": ModelConfig has no field 'nam'; did you mean 'name'?"),
    "wrong type": ('{"max_batch_size": "x"}', ": max_batch_size: expected a whole number from "),
    "not whole": ('{"max_batch_size": 1.5}', ": max_batch_size: expected a whole number from "),
    "out of range": ('{"max_batch_size": 9e9}', ": max_batch_size: expected a whole number from "),
    "unknown enum": (
        '{"instance_group": [{"kind": "tpu"}]}',
        ": instance_group[0].kind: expected one of KIND_AUTO, KIND_GPU, KIND_CPU, ",
    ),
    "no list": ('{"input": 3}', ": input: expected a list, got 3"),
    "no message": ('{"response_cache": 3}', ": response_cache: expected an object, got 3"),
    "no map": ('{"parameters": [3]}', ": parameters: expected an object, got a list"),
    "two schedulers": (
        '{"dynamic_batching": {}, "sequence_batching": {}}',
        ": more than one scheduling_choice is given",
    ),
    "no datatype": ('{"input": [{"name": "x"}]}', ": input 'x' has no data_type"),
}


@pytest.mark.parametrize(("text", "complaint"), JSON_REFUSED.values(), ids=JSON_REFUSED)
def test_json_is_refused_with_the_field(text, complaint):
    with pytest.raises(InvalidConfig) as refused:
        parse_json(text, "config of 'm'")
    assert refused.value.message.startswith(f"config of 'm'{complaint}")


VALUES = [
    ": 5",
    ": -1",
    ": 1.5",
    ': "x"',
    ": true",
    ": foo",
    " { }",
    " { x: 1 }",
    ": [1]",
    ": [{ }]",
]
VALUES += [
    "",
    ":",
    ": 'é'",
    ": 0x",
    ": 1e400",
    ": {",
    " }",
    ": nan",
    ': "\\xff"',
    ': "open',
    f": {2**70}",
]


@pytest.mark.slow
def test_no_value_of_any_field_makes_protobuf_speak_for_us(config_fields):
    for field, way in config_fields:
        for value in VALUES:
            text = field.name + value
            for outer, wrap in reversed(way):
                inner = f'{{ key: "1" value {{ {text} }} }}' if wrap == "map" else f"{{ {text} }}"
                text = f"{outer} {inner}"
            try:
                parse_pbtxt(text, "f")
            except InvalidConfig as error:
                reported = error.message
                assert not re.search(
                    'Expected|Couldn|codec|String|Value|Enum type|type "', reported
                ), reported


@pytest.mark.parametrize("encoding", ["latin-1", "gbk", "utf-8"])
def test_comments_may_be_in_any_encoding(encoding):
    comment = {"latin-1": "modèle \"#'", "gbk": "模型 '", "utf-8": "模型"}[encoding]
    text = (
        f'# {comment}\nname: \'a # b\'  # {comment}\nbackend: "\\"#" max_batch_size: 4 #{comment}'
    )
    config = parse_pbtxt(decode_pbtxt(text.encode(encoding), "f"), "f")
    assert (config.name, config.backend, config.max_batch_size) == ("a # b", '"#', 4)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"# \xe8\nname: '\xe8'", "byte 11 is 0xe8"),
        (b"# \xe8\nname: '#\xe8'", "byte 12 is 0xe8"),
        (b'name: "\\"#\xe8"', "byte 10 is 0xe8"),
        (b"name: 'a\n# \xe8\n\xe8", "byte 13 is 0xe8"),
        (b"\xff\xfe#\x00", "byte 0 is 0xff"),
    ],
)
def test_what_is_no_comment_is_utf_8(content, where):
    with pytest.raises(InvalidConfig) as caught:
        decode_pbtxt(content, "f")
    assert caught.value.message == f"f is not UTF-8: {where}"


def test_a_configuration_is_written_as_a_text_that_says_the_same():
    text = """
        name: "m" max_batch_size: 4 response_cache { enable: true }
        input { name: "\\303\\244\\"" data_type: TYPE_STRING dims: [-1, 2] reshape { shape: [] } }
        parameters { key: "k" value { string_value: "v" } }
    """
    config = parse_pbtxt(text, "a")
    written = to_pbtxt(config)
    assert 'name: "ä\\""\n' in written
    assert "  dims: [-1, 2]\n" in written
    assert parse_pbtxt(written, "b") == config


def test_a_max_batch_size_of_0_is_written_where_it_was_given():
    assert to_pbtxt(parse_pbtxt("max_batch_size: 0", "a")) == "max_batch_size: 0\n"
    assert to_pbtxt(parse_pbtxt("", "a")) == ""
