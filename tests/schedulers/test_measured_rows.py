"""What was measured of Triton 2.51 when requests meet its schedulers, row by row.

Each row is a configuration, a script of requests and what runs then; `script.py` tells how they are
written. Where this server means to do something else, the row says what Triton did, and
docs/guide/batching.md why.
"""

from dataclasses import dataclass, field

import pytest
from script import play

DELAY = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 }"
BUSY = "max_batch_size: 1 dynamic_batching { preferred_batch_size: 1"
VARIABLE = 'input { name: "X" data_type: TYPE_INT8 dims: -1 }'
RAGGED = 'input { name: "X" data_type: TYPE_INT8 dims: -1 allow_ragged_batch: true }'
OPTIONAL = (
    'input { name: "X" data_type: TYPE_INT8 dims: 1 }'
    'input { name: "MORE" data_type: TYPE_INT8 dims: 1 optional: true }'
)
REJECT = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 200000"
LATE = "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 200000 }"


@dataclass
class Row:
    """A row: what it is called, the model, what is sent, what runs, and what is answered when.

    `takes_ms` is how long an execution takes, or {id: how long one with that request does}.
    """

    name: str
    model: str
    sent: str
    runs: list[str]
    ended: list[str] | None = None
    takes_ms: object = 10
    statistics: tuple | None = None
    says: dict[str, str] = field(default_factory=dict)


DYNAMIC = (
    Row(
        "without a scheduler each request is an execution, even if the model could batch",
        "max_batch_size: 8",
        "a b c d",
        ["@0 a", "@10 b", "@20 c", "@30 d"],
        statistics=(4, 4, {1: 4}),
    ),
    Row(
        "six at once, and no numbers: one, then five (1 ms later: who was answered may ask again)",
        "max_batch_size: 8 dynamic_batching {}",
        "a b c d e f",
        ["@0 a", "@201 b c d e f"],
        takes_ms=200,
        statistics=(6, 2, {1: 1, 5: 1}),
    ),
    Row(
        "six at once, and a size: one, then the five that came meanwhile",
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 }",
        "a b c d e f",
        ["@0 a", "@200 b c d e f"],
        takes_ms=200,
        statistics=(6, 2, {1: 1, 5: 1}),
    ),
    Row(
        "a delay of 300 ms, three requests in 60 ms: one batch when the first has waited so long",
        DELAY,
        "a @30 b @60 c",
        ["@300 a b c"],
        ["@310 a b c"],
    ),
    Row(
        "the delay counts from the oldest, not from the last",
        DELAY,
        "a @290 b @310 c",
        ["@300 a b", "@610 c"],
    ),
    Row(
        "three lengths: the first two leave at once, as the next cannot join, the last waits",
        DELAY + VARIABLE,
        "a[3] @20 b[4] @40 c[5]",
        ["@20 a", "@40 b", "@340 c"],
    ),
    Row(
        "three lengths with allow_ragged_batch: one batch",
        DELAY + RAGGED,
        "a[3] @20 b[4] @40 c[5]",
        ["@300 a b c"],
    ),
    Row(
        "preferred 4 and a delay, six requests: 4 at once, 2 after the delay",
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 "
        "max_queue_delay_microseconds: 300000 }",
        "a b c d e f",
        ["@0 a b c d", "@300 e f"],
    ),
    Row(
        "a request larger than all preferred sizes, and a delay: it goes at once",
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 "
        "max_queue_delay_microseconds: 300000 }",
        "a*6 @20 b*3 @40 c*3",
        ["@0 a", "@40 b", "@340 c"],
    ),
    Row(
        "no delay: the largest preferred size of what waits goes first",
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] }",
        "a b c d e f g",
        ["@0 a", "@10 b c d e", "@20 f g"],
    ),
    Row(
        "three requests of three: 6 fit into 8 and go, as the third cannot join; it waits",
        DELAY,
        "a*3 b*3 c*3",
        ["@0 a b", "@300 c"],
        statistics=(9, 2, {3: 1, 6: 1}),
    ),
    Row(
        "two instances, five requests: 1, 1, 3",
        "max_batch_size: 8 instance_group { kind: KIND_CPU count: 2 } "
        "dynamic_batching { preferred_batch_size: 8 }",
        "a b c d e",
        ["@0 #0 a", "@0 #1 b", "@200 #0 c d e"],
        takes_ms=200,
        statistics=(5, 3, {1: 2, 3: 1}),
    ),
    Row(
        "two instances that find their own pace: the same",
        "max_batch_size: 8 instance_group { kind: KIND_CPU count: 2 } dynamic_batching {}",
        "a b c d e",
        ["@0 #0 a", "@0 #1 b", "@200 #0 c d e"],
        takes_ms=200,
        statistics=(5, 3, {1: 2, 3: 1}),
    ),
    Row(
        "an optional input now there, now not: each alone",
        DELAY + OPTIONAL,
        "a @1 b+ @2 c @3 d+",
        ["@1 a", "@11 b", "@21 c", "@303 d"],
    ),
    Row(
        "the same optional input in all: one batch",
        DELAY + OPTIONAL,
        "a+ @1 b+ @2 c+ @3 d+",
        ["@300 a b c d"],
    ),
)

POLICIES = (
    Row(
        "max_queue_size 2, seven at once: 3 served, 4 refused at once, which is no failure",
        BUSY + " default_queue_policy { max_queue_size: 2 } }",
        "a b c d e f g",
        ["@0 a", "@10 b", "@20 c"],
        ["@0 d!503 e!503 f!503 g!503", "@10 a", "@20 b", "@30 c"],
        statistics=(3, 3, {1: 3}, 0),
        says={"d": "its max_queue_size is 2"},
    ),
    Row(
        "REJECT after 200 ms: told when it is late (Triton: when it looks, up to 0.5 s); a failure",
        BUSY + f" {REJECT} }} }}",
        "a @50 b",
        ["@0 a"],
        ["@250 b!503", "@400 a"],
        takes_ms=400,
        statistics=(1, 1, {1: 1}, 1),
        says={"b": "has waited for 200000 microseconds"},
    ),
    Row(
        "DELAY after 200 ms: behind those in time, still served",
        BUSY + f" {LATE} }}",
        "a @50 b @300 c",
        ["@0 a", "@400 c", "@600 b"],
        takes_ms={"a": 400, "b": 10, "c": 200},
    ),
    Row(
        "a request's own timeout counts when it is shorter than the default",
        BUSY + f" {REJECT} allow_timeout_override: true }} }}",
        "a b~100 c~300 d",
        ["@0 a"],
        ["@100 b!503", "@200 c!503 d!503", "@400 a"],
        takes_ms=400,
    ),
    Row(
        "without allow_timeout_override it does not count",
        BUSY + f" {REJECT} }} }}",
        "a b~100",
        ["@0 a"],
        ["@200 b!503", "@400 a"],
        takes_ms=400,
    ),
    Row(
        "nor where there is no default that it could be shorter than",
        BUSY + " default_queue_policy { allow_timeout_override: true } }",
        "a b~100",
        ["@0 a", "@400 b"],
        takes_ms=400,
    ),
    Row(
        "without any policy it does (Triton: it does not)",
        BUSY + " }",
        "a b~100",
        ["@0 a"],
        ["@100 b!503", "@400 a"],
        takes_ms=400,
    ),
    Row(
        "a request that is cancelled leaves the queue",
        BUSY + " }",
        "a b c @5 -b",
        ["@0 a", "@10 c"],
        ["@10 a", "@20 c"],
    ),
    Row(
        "priorities: 1 is the highest, 0 and one there is not are the default, in order inside",
        BUSY + " priority_levels: 3 default_priority_level: 2 }",
        "a b^3 c^2 d^9 e f^1 g^0 h^1",
        ["@0 a", "@10 f", "@20 h", "@30 c", "@40 d", "@50 e", "@60 g", "@70 b"],
    ),
    Row(
        "a model without levels takes no notice of priorities",
        BUSY + " }",
        "a b^3 c^1",
        ["@0 a", "@10 b", "@20 c"],
    ),
    Row(
        "preserve_ordering: answers wait for those of requests before, across instances",
        "max_batch_size: 1 instance_group { kind: KIND_CPU count: 2 } "
        "dynamic_batching { preferred_batch_size: 1 preserve_ordering: true }",
        "a b c",
        ["@0 #0 a", "@0 #1 b", "@50 #1 c"],
        ["@1000 a b c"],
        takes_ms={"a": 1000, "b": 50, "c": 50},
    ),
)


def sequences(strategy="direct {}", most=2, count=1, idle_ms=1000, controls="", **more):
    """A model that takes sequences, and is told of each row whether it is there."""
    ready = (
        'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY '
        "int32_false_true: [0, 1] } }"
    )
    text = f"max_batch_size: {most} instance_group {{ kind: KIND_CPU count: {count} }} "
    text += f"sequence_batching {{ {strategy} max_sequence_idle_microseconds: {idle_ms * 1000} "
    text += f"{ready} {controls} }}"
    for name, value in more.items():
        text += f' parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'
    return text


SEQUENCES = (
    Row(
        "a request without an id",
        sequences(),
        ".a",
        [],
        ["@0 a!400"],
        says={"a": "must specify a non-zero or non-empty correlation ID"},
    ),
    Row(
        "the first request without START, and one after END",
        sequences(),
        "A1 (B1 B2) @50 B3",
        ["@0 B1", "@10 B2"],
        ["@0 A1!400", "@10 B1", "@20 B2", "@50 B3!400"],
        says={"A1": "must specify the START flag", "B3": "request for sequence 66"},
    ),
    Row(
        "a batch of more than one",
        sequences(),
        "(A1*2",
        [],
        ["@0 A1!400"],
        says={"A1": "must specify batch-size 1"},
    ),
    Row(
        "a second START of the same id: accepted, and begins anew",
        sequences(),
        "(A1 (A2 A3)",
        ["@0 A1", "@10 A2", "@20 A3"],
    ),
    Row(
        "START and END in one request",
        sequences(most=1),
        "(A1) (B1)",
        ["@0 A1", "@10 B1"],
    ),
    Row(
        "idle for longer than max_sequence_idle: it needs START again",
        sequences(idle_ms=1000),
        "(A1 @1009 A2 @2020 A3",
        ["@0 A1", "@1009 A2"],
        ["@10 A1", "@1019 A2", "@2020 A3!400"],
        says={"A3": "when no request comes for 1000000 microseconds"},
    ),
    Row(
        "an id that is a text, but the control a number: refused (2.51: the model got rubbish)",
        sequences(
            controls='control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID '
            "data_type: TYPE_UINT64 } }"
        ),
        "(a1",
        [],
        ["@0 a1!400"],
        says={"a1": "data-type is 'BYTES', but model 'm' expects 'UINT64'"},
    ),
    Row(
        "ids that are texts, and an empty row below: it runs (2.51: refused by mistake)",
        sequences(
            controls='control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID '
            "data_type: TYPE_STRING } }"
        ),
        "(a1 (b1 @50 b2",
        ["@0 a1", "@10 - b1", "@50 - b2"],
    ),
    Row(
        "waiting for a slot for longer than its timeout",
        sequences(most=1),
        "(A1 (B1~100 @500 A2)",
        ["@0 A1", "@500 A2"],
        ["@10 A1", "@100 B1!503", "@510 A2"],
        says={"B1": "has waited for 100000 microseconds"},
    ),
    Row(
        "direct: rows 0 to the last with a request; one without is filled, none behind it is",
        sequences(most=4),
        "(A1 (B1 (C1 @100 B2 @200 A2) @300 C2) @400 B3)",
        ["@0 A1", "@10 - B1 C1", "@100 - B2", "@200 A2", "@300 - - C2", "@400 - B3"],
    ),
    Row(
        "direct: equal lengths join, whatever lies between; the others follow",
        sequences(most=4) + VARIABLE,
        "(A1[2] @1 (B1[3] (C1[2] (D1[3]",
        ["@0 A1", "@10 - B1 - D1", "@20 - - C1"],
    ),
    Row(
        "direct: no free row, so the third waits until an idle one is taken back",
        sequences(most=2, idle_ms=1000),
        "(A1 @10 (B1 @60 (C1",
        ["@0 A1", "@10 - B1", "@1010 C1"],
    ),
    Row(
        "direct: a delay means nothing without minimum_slot_utilization",
        sequences("direct { max_queue_delay_microseconds: 100000 }"),
        "(A1 @5 (B1",
        ["@0 A1", "@10 - B1"],
    ),
    Row(
        "direct: a share of the rows must have a request, or the oldest has waited for the delay",
        sequences(
            "direct { max_queue_delay_microseconds: 100000 minimum_slot_utilization: 0.5 }", most=4
        ),
        "(A1 @20 (B1 @100 A2",
        ["@20 A1 B1", "@200 A2"],
    ),
    Row(
        "rows 0 of all instances are taken before any row 1",
        sequences(count=2),
        "(A1 (B1 (C1 @50 A2 B2 C2",
        ["@0 #0 A1", "@0 #1 B1", "@10 #0 - C1", "@50 #0 A2", "@50 #1 B2", "@60 #0 - C2"],
    ),
    Row(
        "oldest: requests of different sequences together, never two of one, no filled rows",
        sequences("oldest { max_candidate_sequences: 3 }", most=4),
        "(A1 (B1 (C1 A2) C2) B2)",
        ["@0 A1", "@10 B1 C1 A2", "@20 B2 C2"],
    ),
    Row(
        "oldest: a delay and preferred sizes as in dynamic batching",
        sequences(
            "oldest { max_candidate_sequences: 4 preferred_batch_size: 2 "
            "max_queue_delay_microseconds: 100000 }",
            most=4,
        ),
        "(A1) @20 (B1) @40 (C1)",
        ["@20 A1 B1", "@140 C1"],
    ),
    Row(
        "oldest: more than max_candidate_sequences wait in the backlog",
        sequences("oldest { max_candidate_sequences: 1 }", most=4),
        "(A1 (B1) (C1) @50 A2)",
        ["@0 A1", "@50 A2", "@60 B1", "@70 C1"],
    ),
    Row(
        "one request cancelled: all that wait in its sequence are",
        sequences(most=1),
        "(A1 A2 A3 A4 (B1) @5 -A3",
        ["@0 A1", "@10 B1"],
        ["@5 A2!400 A4!400", "@10 A1", "@20 B1"],
    ),
)


@pytest.mark.parametrize("row", DYNAMIC + POLICIES + SEQUENCES, ids=lambda row: row.name)
def test_it_runs_as_measured(row):
    told = play(row.model, row.sent, row.takes_ms)
    assert told.runs == row.runs
    if row.ended is not None:
        assert told.ended() == row.ended
    for id, text in row.says.items():
        assert text in told.errors[id][2]
    if row.statistics is not None:
        count, executions, sizes, *failures = row.statistics
        assert told.statistics.inference_count == count
        assert told.statistics.execution_count == executions
        assert {
            one.batch_size: one.compute_infer.count for one in told.statistics.batch_stats
        } == sizes
        assert [told.statistics.inference_stats.fail.count] * len(failures) == failures


CONTROLS = " ".join(
    f'control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} {values} }} }}'
    for kind, values in {
        "START": "int32_false_true: [0, 1]",
        "END": "fp32_false_true: [-1, 1]",
        "CORRID": "data_type: TYPE_UINT32",
    }.items()
)


@pytest.mark.parametrize(("most", "shape"), [(2, (1, 1)), (0, (1,))])
def test_a_request_says_where_in_its_sequence_it_is(most, shape):
    told = play(sequences(most=most, controls=CONTROLS), "(A1 A2 A3) @50 (A4)")
    values = {id: [inputs[name] for name in NAMES] for id, inputs in told.seen.items()}
    assert values == {
        "A1": controls(1, -1, 1, 65, shape),
        "A2": controls(0, -1, 1, 65, shape),
        "A3": controls(0, 1, 1, 65, shape),
        "A4": controls(1, 1, 1, 65, shape),
    }


def test_a_row_without_a_request_is_a_copy_of_another_that_says_so():
    told = play(sequences(controls=CONTROLS), "(A1 (B1 @50 B2)")
    assert told.runs == ["@0 A1", "@10 - B1", "@50 - B2"]
    assert [told.seen["-"][name] for name in NAMES] == controls(0, -1, 0, 0, (1, 1))
    assert told.seen["-"]["X"] == told.seen["B1"]["X"]


NAMES = ("START", "END", "READY", "CORRID")


def controls(start, end, ready, id, shape):
    types = ("INT32", "FP32", "INT32", "UINT32")
    values = (start, end, ready, id)
    return [(kind, shape, [value]) for kind, value in zip(types, values, strict=True)]
