from inferd.core.metadata import IndexEntry, ModelState
from inferd.server.report import failures, model_table

INDEX = [
    IndexEntry("resnet", "12", ModelState.READY),
    IndexEntry("broken", "", ModelState.UNAVAILABLE, "config.pbtxt line 3: odd\nand more"),
    IndexEntry("seen"),
]


def test_the_table_shows_models_versions_states_and_reasons():
    assert model_table(INDEX) == [
        "Model   Version  State        Reason",
        "resnet  12       READY",
        "broken  -        UNAVAILABLE  config.pbtxt line 3: odd",
        "                              and more",
        "seen    -        NOT LOADED",
    ]


def test_an_empty_repository_is_said():
    assert model_table([]) == ["no models found"]


def test_failures_name_model_state_and_reason():
    assert failures(INDEX) == [
        "model 'broken' is UNAVAILABLE: config.pbtxt line 3: odd\nand more",
        "model 'seen' is NOT LOADED: no reason given",
    ]
