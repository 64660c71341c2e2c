"""Numbers in a configuration that a client sends: refused or harmless, and what serves goes on."""

import json

import pytest
from target import MIB

MOST, HUGE = 2**31 - 1, 2**64 - 1
BASE = {
    "backend": "identity",
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def dims(*sizes):
    tensor = {"data_type": "TYPE_FP32", "dims": list(sizes)}
    return {"input": [tensor | {"name": "IN"}], "output": [tensor | {"name": "OUT"}]}


def warmup(**fields):
    zeros = {"data_type": "TYPE_FP32", "dims": [2**40], "zero_data": True}
    return {"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"IN": zeros}} | fields]}


def sequences(**fields):
    return {"max_batch_size": 8, "sequence_batching": fields}


def queue(**fields):
    return {"max_batch_size": 8, "dynamic_batching": fields}


def group(**fields):
    return {"instance_group": [{"kind": "KIND_CPU", "count": 1} | fields]}


REFUSED = {
    "a batch below zero": {"max_batch_size": -1},
    "a batch of 64 bits": {"max_batch_size": 2**63},
    "a batch in a text": {"max_batch_size": str(2**32 + 8)},
    "a dim below -1": dims(-2),
    "a dim of zero": dims(0),
    "a dim of 65 bits": dims(2**64),
    "instances without end": group(count=MOST),
    "a gpu below zero": group(kind="KIND_GPU", gpus=[-1]),
    "a sample of a terabyte": warmup(),
    "a sample of too many rows": {"max_batch_size": MOST} | warmup(batch_size=2**32 - 1),
    "a state of a terabyte": sequences(
        state=[
            {
                "input_name": "S",
                "output_name": "T",
                "data_type": "TYPE_FP32",
                "dims": [2**40],
                "initial_state": [
                    {"data_type": "TYPE_FP32", "dims": [2**40], "zero_data": True, "name": "z"}
                ],
            }
        ]
    ),
    "sequences below zero": sequences(oldest={"max_candidate_sequences": -1}),
    "a preferred batch below zero": queue(preferred_batch_size=[-1]),
    "a preferred batch of zero": queue(preferred_batch_size=[0]),
    "a delay of centuries": queue(max_queue_delay_microseconds=HUGE),
    "no versions": {"version_policy": {"latest": {"num_versions": 0}}},
    "a version below zero": {"version_policy": {"specific": {"versions": [-1]}}},
    "a number that is none": '{"max_batch_size":NaN}',
    "a number without end": '{"max_batch_size":' + "9" * 100_000 + "}",
    "a batch of floats": {"max_batch_size": 1e300},
}
HARMLESS = {
    "dims that wrap": dims(2**62, 2**62),
    "the largest batch": {"max_batch_size": MOST},
    "instances below zero": group(count=-5),
    "a resource without end": group(
        rate_limiter={"priority": 2**32 - 1, "resources": [{"name": "R", "count": 2**32 - 1}]}
    ),
    "priorities without end": queue(priority_levels=HUGE, default_priority_level=HUGE),
    "sequences without end": sequences(oldest={"max_candidate_sequences": MOST}),
    "sequences for ever": sequences(max_sequence_idle_microseconds=HUGE),
}


def load(target, config):
    text = config if isinstance(config, str) else json.dumps(BASE | config)
    body = json.dumps({"parameters": {"config": text}})
    return target.ask("POST", "/v2/repository/models/text/load", body)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_and_what_serves_goes_on(target, what):
    size = target.resident_bytes()
    status, answer = load(target, REFUSED[what])
    assert status == 400, answer
    assert target.resident_bytes() - size < 50 * MIB
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    body = json.dumps({"inputs": [tensor]})
    assert target.ask("POST", "/v2/models/text/infer", body)[0] == 200


@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_only_large_allocates_nothing(target, what):
    size = target.resident_bytes()
    try:
        status, answer = load(target, HARMLESS[what])
        assert status == 200, answer
        assert target.resident_bytes() - size < 50 * MIB
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1.5]}
        if what in ("instances below zero", "a resource without end"):
            tensor["shape"] = [1]
        request = {"inputs": [tensor], "parameters": {"priority": 2**32}}
        if "sequence" in what:
            request["parameters"] |= {"sequence_id": 1, "sequence_start": True}
        status, answer = target.ask("POST", "/v2/models/text/infer", json.dumps(request))
        assert status in (200, 400), answer
    finally:
        assert target.ask("POST", "/v2/repository/models/text/load", b"{}")[0] == 200
