from inferd.core.metadata import IndexEntry, ModelState
from inferd.server.process import failures, model_fields, model_table

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
    on_demand = ["no models asked for: clients load them, or --load-model at the start"]
    assert model_table([], is_on_demand=True) == on_demand


def test_failures_are_named_with_their_version():
    assert failures(INDEX) == ["broken", "seen"]
    assert failures([IndexEntry("m", "3", ModelState.UNAVAILABLE)]) == ["m 3"]


def test_a_json_line_has_the_columns_of_the_table():
    assert model_fields(INDEX[0]) == {
        "model": "resnet",
        "version": "12",
        "state": "READY",
        "reason": "",
    }
