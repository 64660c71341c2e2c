import asyncio
import logging
import shutil
import threading
import time

import pytest
from fields import with_fields

from inferd.config.model import MetricControl, ModelConfig
from inferd.core.load import Attempt
from inferd.core.request import InferRequest, WantedOutput
from inferd.engine.engine import Engine
from inferd.engine.loading.load import (
    MAX_IGNORED_SHOWN,
    Attempts,
    Loader,
    LoadOptions,
    counts_of,
    gpu_count,
    tell_ignored,
)
from inferd.errors import BackendFailed, InferdError, InvalidConfig
from inferd.observe.prometheus import FIRST_RESPONSE_BUCKETS_MS, FIRST_RESPONSES
from inferd.observe.stats import Counts
from inferd.observe.summary import SummaryCounts
from inferd.repository.repositories import Repositories

PATIENCE_S = 30
PARAMETER = '\nparameters {{ key: "{}" value: {{ string_value: "{}" }} }}'
ECHO = """
backend: "identity"
max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_FP32 dims: 2 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 2 }
"""


def load(root, **options):
    """Load the one model below `root` in a thread, as the engine does."""

    async def go():
        loader = Loader(LoadOptions(**options))
        [model] = Repositories([root], loader.reading).find_all()
        return await loader.load_in_thread(model, (model.versions or (1,))[0])

    return asyncio.run(go())


def complaint(root, kind=InferdError, **options):
    with pytest.raises(kind) as caught:
        load(root, **options)
    assert str(root) not in caught.value.message
    return caught.value.message


def answers(served, *requests):
    async def go():
        found = [await served.scheduler.run(request) for request in requests]
        await served.scheduler.close(PATIENCE_S)
        return found

    return asyncio.run(go())


# --- what is loaded ---


def test_a_model_is_completed_and_normalised(onnx_sum):
    served = load(onnx_sum())
    assert (served.name, served.version, served.platform) == ("sum", "1", "onnxruntime_onnx")
    assert (served.config.platform, served.config.backend) == ("onnxruntime_onnx", "onnxruntime")
    assert [one.shape for one in served.inputs()] == [(-1, 2), (-1, 2)]
    assert served.config.max_batch_size == 4
    assert served.config.dynamic_batching.preferred_batch_size == (4,)
    asyncio.run(served.scheduler.close(PATIENCE_S))


def test_without_completion_a_model_needs_its_config(onnx_sum):
    text = complaint(onnx_sum(), InvalidConfig, disable_auto_complete_config=True)
    assert text == "model 'sum' has no config.pbtxt, and deriving one is turned off"


def test_without_completion_a_config_serves_as_it_is(theirs, repository):
    root = repository(m='backend: "theirs"')
    served = load(root, disable_auto_complete_config=True)
    assert served.inputs() == []
    assert load(root).inputs() != []


def test_dynamic_batching_is_served_one_request_after_another(repository, ask):
    served = load(repository(m=ECHO + "dynamic_batching {}"))
    [first, second] = answers(served, ask("m", INPUT0=[[1, 2]]), ask("m", INPUT0=[[3, 4], [5, 6]]))
    assert first.outputs[0].numpy().tolist() == [[1, 2]]
    assert second.outputs[0].numpy().tolist() == [[3, 4], [5, 6]]


LABELLED = ECHO.replace("output {", 'output { label_filename: "labels.txt"')


def test_labels_are_read_with_the_model(repository, ask):
    root = repository(m=LABELLED)
    (root / "m" / "labels.txt").write_text("ant\nbee\n")
    engine = Engine()
    engine.catalog.add(load(root))
    request = ask("m", INPUT0=[[1, 2]])
    request.outputs = [WantedOutput("OUTPUT0", top_k=1)]

    async def go():
        try:
            return await engine.infer(request)
        finally:
            await engine.close(PATIENCE_S)

    [output] = asyncio.run(go()).outputs
    assert output.strings() == [b"2.000000:1:bee"]


def test_a_model_without_its_labels_does_not_load(repository):
    text = complaint(repository(m=LABELLED), InvalidConfig)
    assert text == "model 'm': label_filename names 'labels.txt', and there is no such file"


def test_a_group_for_gpus_serves_on_a_machine_without(repository, ask, caplog):
    with caplog.at_level(logging.WARNING, "inferd.engine"):
        served = load(repository(m=ECHO + "instance_group { kind: KIND_GPU }"))
    assert ("there is none: it runs on the CPU" in caplog.text) == (gpu_count() == 0)
    [answer] = answers(served, ask("m", INPUT0=[[1, 2]]))
    assert answer.outputs[0].numpy().tolist() == [[1, 2]]


def test_gpus_are_those_the_driver_lists(tmp_path):
    assert gpu_count(tmp_path / "no driver") == 0
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:02:00.0").mkdir()
    assert gpu_count(tmp_path) == 2


def test_a_broken_model_raises_what_is_wrong_with_it(repository):
    text = complaint(repository(m='platform: "magic"'), InvalidConfig)
    assert text.startswith("model 'm', config.pbtxt: platform 'magic' is unknown, known are: ")


@pytest.mark.parametrize("is_bare", [False, True])
def test_a_pointer_in_place_of_a_model_is_named(repository, tmp_path, is_bare):
    root = repository(m="")
    (root / "m/1").mkdir(exist_ok=True)
    file = root / "m/1/model.onnx"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    file.write_text(pointer)
    if is_bare:
        root = file.rename(tmp_path / "model.onnx")
    said = "'model.onnx' is a pointer of Git LFS, get the file with: git lfs pull"
    assert complaint(root).endswith(f"; {said}")


def test_folders_that_are_no_versions_are_told_of(repository, caplog):
    root = repository("1", "01", m=ECHO)
    with caplog.at_level(logging.WARNING, "inferd.engine"):
        tell_ignored(*Repositories([root]).find_all())
    assert caplog.messages == [
        "model 'm': folder '01' is no version: expected a decimal number without leading 0, here 1"
    ]


def test_very_many_such_folders_are_counted(repository, caplog):
    root = repository("1", *(f"no{number}" for number in range(100)), m=ECHO)
    with caplog.at_level(logging.WARNING, "inferd.engine"):
        tell_ignored(*Repositories([root]).find_all())
    assert len(caplog.messages) == MAX_IGNORED_SHOWN + 1
    assert caplog.messages[-1] == f"model 'm': so are {100 - MAX_IGNORED_SHOWN} more folders"


def test_a_named_config_is_chosen(repository):
    root = repository(m=ECHO)
    (root / "m" / "configs").mkdir()
    (root / "m" / "configs" / "big.pbtxt").write_text(ECHO.replace("4", "64", 1))
    assert load(root).config.max_batch_size == 4
    assert load(root, model_config_name="big").config.max_batch_size == 64


# --- instances ---


def test_instances_are_as_many_as_the_groups_say(theirs, repository):
    served = load(repository(m='backend: "theirs"\ninstance_group { count: 2 }'))
    assert sorted(theirs.log[1:]) == [("open", "m_0_0"), ("open", "m_0_1")]
    asyncio.run(served.scheduler.close(PATIENCE_S))
    assert sorted(theirs.log[3:]) == [("close", "m_0_0"), ("close", "m_0_1")]


def test_models_share_the_backend_of_one_loader(theirs, repository):
    loader = Loader(LoadOptions())
    for model in Repositories(
        [repository(m='backend: "theirs"', n='backend: "theirs"')], loader.reading
    ).find_all():
        loader.load(model, 1)
    assert theirs.log == ["backend", ("open", "m_0"), ("open", "n_0")]


def test_instances_are_closed_when_a_later_one_cannot_be_opened(theirs, repository):
    theirs.failures += [None, None, BackendFailed("the third")]
    root = repository(m='backend: "theirs"\ninstance_group { count: 3 }')
    assert complaint(root, BackendFailed) == "the third"
    opened = sorted(name for what, name in theirs.log[1:] if what == "open")
    assert len(opened) == 2
    assert sorted(theirs.log[3:]) == [("close", name) for name in opened]


def test_instances_of_a_version_are_opened_side_by_side(theirs, repository):
    theirs.pairs = threading.Barrier(2)  # who is alone there waits until the test fails
    served = load(repository(m='backend: "theirs"\ninstance_group { count: 4 }'))
    assert theirs.peak >= 2
    asyncio.run(served.scheduler.close(PATIENCE_S))


def test_a_decoupled_model_needs_a_backend_that_can(theirs, repository):
    root = repository(m='backend: "theirs"\nmodel_transaction_policy { decoupled: true }')
    text = complaint(root, InvalidConfig)
    assert text == "model 'm': backend 'theirs' runs no decoupled models"
    assert theirs.log[1:] == [("open", "m_0"), ("close", "m_0")]


# --- where it runs ---


@pytest.mark.parametrize(
    ("backend", "parameters", "is_inline"),
    [
        ("theirs", {}, True),
        ("theirs", {"inferd_execution": "auto"}, True),
        ("theirs", {"inferd_execution": "threads"}, False),
        ("theirs", {"inferd_execution": "inline"}, True),
        ("theirs", {"unbounded": "1"}, False),
        ("theirs", {"unbounded": "1", "inferd_execution": "inline"}, True),
        ("unbounded", {}, False),
        ("unbounded", {"inferd_execution": "inline"}, True),
        ("single", {}, False),
        ("single", {"inferd_execution": "threads"}, False),
    ],
)
def test_where_a_model_runs_is_the_backends_promise_or_a_parameter(
    theirs, repository, ask, backend, parameters, is_inline
):
    text = f'backend: "{backend}"' + "".join(PARAMETER.format(*one) for one in parameters.items())
    # Time is real here: enough runs for eight short ones in a row.
    answers(load(repository(m=text)), *[ask("m", A=[1])] * 200)
    assert any(theirs.on_loop) is is_inline
    assert not any(theirs.on_loop[:8])


def test_an_unknown_place_to_run_is_refused_and_nothing_stays_open(theirs, repository):
    text = complaint(
        repository(m='backend: "theirs"' + PARAMETER.format("inferd_execution", "fast")),
        InvalidConfig,
    )
    assert text == (
        "model 'm': parameter inferd_execution is 'fast', expected auto, inline or threads"
    )
    assert theirs.log[1:] == [("open", "m_0"), ("close", "m_0")]


def test_a_limit_that_nothing_keeps_is_refused_and_nothing_stays_open(theirs, repository):
    text = complaint(
        repository(
            m='backend: "theirs"' + PARAMETER.format("inferd_execution_timeout_seconds", "5")
        ),
        InvalidConfig,
    )
    assert text == (
        "model 'm': parameter inferd_execution_timeout_seconds needs a process of its own, but "
        "backend 'theirs' runs in the server, where nothing can end an execution"
    )
    assert theirs.log[1:] == [("open", "m_0"), ("close", "m_0")]


def test_a_backend_that_runs_in_one_thread_cannot_run_inline(theirs, repository):
    text = complaint(
        repository(m='backend: "single"' + PARAMETER.format("inferd_execution", "inline")),
        InvalidConfig,
    )
    assert text == (
        "model 'm': parameter inferd_execution is 'inline', but backend 'single' does not run "
        "a model in several threads at once"
    )


# --- threads, retries, failures ---


def test_a_model_loads_in_a_thread_that_cannot_keep_the_process_from_ending(theirs, repository):
    load(repository(m='backend: "theirs"'))
    [thread] = theirs.threads
    assert thread is not threading.main_thread()
    assert thread.daemon


def test_a_load_is_tried_again_as_often_as_the_options_say(theirs, repository, caplog):
    root = repository(m='backend: "theirs"')
    theirs.failures += [BackendFailed("once"), OSError("twice")]
    with caplog.at_level(logging.WARNING, "inferd.engine"):
        assert load(root, model_load_retry_count=2).name == "m"
    assert "once; trying again" in caplog.messages
    assert "model 'm' version 1 cannot be loaded: OSError: twice; trying again" in caplog.messages
    theirs.failures += [BackendFailed("once"), BackendFailed("twice")]
    assert complaint(root, model_load_retry_count=1) == "twice"
    assert len(theirs.threads) == 5


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("odd"), "ValueError: odd"),
        (
            FileNotFoundError(2, "No such file", "/srv/secret/models/x.bin"),
            "FileNotFoundError: [Errno 2] No such file: 'x.bin'",
        ),
        (ImportError("no y (/usr/lib/python3/y.py), see http://a.b/c"),
         "ImportError: no y (y.py), see http://a.b/c"),
        (SystemExit(1), "SystemExit: 1"),
        (StopIteration(), "StopIteration"),
        (asyncio.CancelledError(), "CancelledError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)  # fmt: skip
def test_whatever_a_backend_raises_fails_its_model_only(theirs, repository, failure, text):
    theirs.failures.append(failure)
    root = repository(m='backend: "theirs"')
    assert complaint(root, BackendFailed) == f"model 'm' version 1 cannot be loaded: {text}"
    assert load(root).name == "m"


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_what_a_backend_raises_is_logged_with_its_traceback_only_if_verbose(
    theirs, repository, caplog, level
):
    theirs.failures.append(ValueError("odd"))
    with caplog.at_level(level, "inferd.engine"):
        complaint(repository(m='backend: "theirs"'), BackendFailed)
    assert ("Traceback" in caplog.text) == (level == logging.DEBUG)


def test_an_error_of_ours_shows_no_path_above_the_model(theirs, repository):
    root = repository(m='backend: "theirs"')
    theirs.failures.append(BackendFailed(f"cannot read {root}/m/1/weights.bin"))
    assert complaint(root) == "cannot read 1/weights.bin"


@pytest.mark.parametrize("failure", [None, BackendFailed("too late")])
def test_a_load_that_was_given_up_closes_what_it_opened(theirs, repository, failure):
    root = repository(m='backend: "theirs"\ninstance_group { count: 2 }')
    theirs.failures += [None, failure]
    theirs.may_open.clear()

    async def go():
        loader = Loader(LoadOptions())
        [model] = Repositories([root], loader.reading).find_all()
        loading = asyncio.create_task(loader.load_in_thread(model, 1))
        await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        theirs.may_open.set()
        assert await asyncio.to_thread(theirs.closed.wait, PATIENCE_S)

    asyncio.run(go())
    opened = [what for what in theirs.log if what[0] == "open"]
    assert len([what for what in theirs.log if what[0] == "close"]) == len(opened)


def test_a_load_that_ends_after_its_loop_hurts_nobody(theirs, repository):
    root = repository(m='backend: "theirs"')
    theirs.may_open.clear()

    async def leave():
        loader = Loader(LoadOptions())
        [model] = Repositories([root], loader.reading).find_all()
        asyncio.create_task(loader.load_in_thread(model, 1))  # noqa: RUF006  nobody waits for it
        await asyncio.to_thread(theirs.opening.wait, PATIENCE_S)

    asyncio.run(leave())
    theirs.may_open.set()
    [thread] = theirs.threads
    thread.join(PATIENCE_S)  # an exception in it would be a warning, and those are errors
    assert ("open", "m_0") in theirs.log


# --- what is counted of it ---


def test_a_version_knows_how_long_it_took_to_load(repository):
    began_s = time.monotonic()
    served = load(repository(m=ECHO))
    assert 0 < served.load_s <= time.monotonic() - began_s
    assert served.is_on_gpu is False


def test_summaries_are_counted_when_the_options_say_so(repository):
    root = repository(m=ECHO)
    assert type(load(root).counts) is Counts
    assert type(load(root, summary_latencies=True).counts) is SummaryCounts


def decoupled(*buckets, family=FIRST_RESPONSES):
    controls = (MetricControl(family, buckets),)
    return ModelConfig("m", decoupled=True, model_metrics=controls)


@pytest.mark.parametrize(
    ("config", "bounds"),
    [
        (ModelConfig("m", decoupled=True), FIRST_RESPONSE_BUCKETS_MS),
        (decoupled(0.5, 10.0), (0.5, 10.0)),
        (decoupled(), FIRST_RESPONSE_BUCKETS_MS),
        (decoupled(1.0, family="another"), FIRST_RESPONSE_BUCKETS_MS),
    ],
)
def test_a_decoupled_model_counts_its_first_answers_in_its_buckets(config, bounds):
    counts = counts_of(config, with_summaries=False, with_histograms=False)
    assert counts.first_responses.bounds == bounds


def test_a_model_that_is_not_decoupled_counts_its_answers_where_histograms_are_on():
    config = ModelConfig("m")
    off = counts_of(config, with_summaries=False, with_histograms=False)
    on = counts_of(config, with_summaries=True, with_histograms=True)
    request = with_fields(InferRequest("m"), queued_ns=1, started_ns=2, ended_ns=1_000_001)
    for counts in (off, on):
        counts.add_success(request)
    assert off.first_responses is None
    assert (sum(on.first_responses.counts), on.first_responses.sum) == (1, 1.0)


@pytest.mark.parametrize("buckets", [(2.0, 1.0), (1.0, 1.0), (1.0, float("inf")), (float("nan"),)])
def test_buckets_out_of_order_are_refused(buckets):
    with pytest.raises(InvalidConfig, match=r"model 'm': the buckets of nv_\w+ are not in order"):
        counts_of(decoupled(*buckets), with_summaries=False, with_histograms=False)


LIMITED = """
instance_group { count: 2 rate_limiter { resources { name: "R" count: 2 } } }
"""


def test_a_rate_limiter_means_nothing_unless_it_is_asked_for(repository, ask):
    root = repository(m=ECHO + LIMITED)
    served = load(root)
    [answer] = answers(served, ask("m", INPUT0=[[1, 2]]))
    assert answer.outputs[0].numpy().tolist() == [[1, 2]]
    assert complaint(root, InvalidConfig, rate_limits={("R", None): 1}) == (
        "model 'm', instance 'm_0_0': rate_limiter resource 'R' is needed 2 times, "
        "--rate-limit-resource has 1 of it"
    )


def test_a_limited_model_answers(repository, ask):
    served = load(repository(m=ECHO + LIMITED), rate_limits={})
    [answer] = answers(served, ask("m", INPUT0=[[1, 2]]))
    assert answer.outputs[0].numpy().tolist() == [[1, 2]]


def test_a_limited_model_cannot_be_made_to_run_inline(repository):
    inline = 'parameters { key: "inferd_execution" value { string_value: "inline" } }'
    text = complaint(repository(m=ECHO + LIMITED + inline), InvalidConfig, rate_limits={})
    assert text.endswith("its rate_limiter may make it wait")


def test_a_limited_instance_that_cannot_be_opened_leaves_its_claim(theirs, repository):
    theirs.failures.append(BackendFailed("no"))
    loader = Loader(LoadOptions(rate_limits={}))
    config = 'backend: "theirs"\n' + LIMITED
    [model] = Repositories([repository(m=config)], loader.reading).find_all()
    with pytest.raises(BackendFailed):
        loader.load(model, 1)
    assert loader._limiter._claims == []
    loader.load(model, 1)
    assert len(loader._limiter._claims) == 2


def test_a_placement_that_cannot_be_is_refused_by_a_server_of_one_process_too(repository):
    for word, why in (("nowhere", "expected auto, copy, single or spread"), ("copy", "resources")):
        limited = 'instance_group { rate_limiter { resources { name: "R" count: 1 } } }'
        root = repository(m=ECHO + limited + PARAMETER.format("inferd_placement", word))
        text = complaint(root, InvalidConfig, rate_limits={("R", None): 1})
        assert text.startswith("model 'm': parameter inferd_placement is ")
        assert why in text
        shutil.rmtree(root / "m")


def test_giving_up_a_model_leaves_the_others():
    attempts = Attempts()
    ours, also, other = Attempt(), Attempt(), Attempt()
    with (
        attempts.running("m", ours),
        attempts.running("m", also),
        attempts.running("n", other),
    ):
        attempts.give_up("m")
        assert [one.is_wanted() for one in (ours, also, other)] == [False, False, True]
        attempts.give_up()
        assert not other.is_wanted()


def test_what_has_ended_is_not_given_up():
    attempts, attempt = Attempts(), Attempt()
    with pytest.raises(ZeroDivisionError), attempts.running("m", attempt):
        raise ZeroDivisionError
    attempts.give_up("m")
    attempts.give_up()
    assert attempt.is_wanted()


def test_a_model_that_loads_no_more_needs_no_place():
    attempts = Attempts()
    attempts.give_up("m")
    with attempts.running("m", Attempt()):
        pass
    assert not attempts._running
