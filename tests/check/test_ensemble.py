"""Ensembles that call each other, and what is broken below them."""

from good import ENSEMBLE, ONNX_FILES

from inferd.check.places import check_paths
from inferd.repository.local import Reading


def calls(name, *models):
    steps = "".join(
        f'step {{ model_name: "{model}" model_version: -1 '
        f'input_map {{ key: "{takes}" value: "T{number}" }} '
        f'output_map {{ key: "{gives}" value: "T{number + 1}" }} }}\n'
        for number, (model, takes, gives) in enumerate(models)
    )
    return (
        f'name: "{name}" platform: "ensemble" max_batch_size: 4\n'
        f'input {{ name: "T0" data_type: TYPE_FP32 dims: 4 }}\n'
        f'output {{ name: "T{len(models)}" data_type: TYPE_FP32 dims: 4 }}\n'
        f"ensemble_scheduling {{\n{steps}}}\n"
    )


def check(repository, files):
    return check_paths([repository(files)], Reading()).findings


def test_ensembles_in_ensembles_are_checked(repository):
    outer = calls("outer", ("e", "A", "C"), ("n", "x", "y"))
    files = {"e/config.pbtxt": ENSEMBLE, "e/1/x": "", **ONNX_FILES}
    assert check(repository, files | {"outer/config.pbtxt": outer, "outer/1/x": ""}) == []
    wrong = outer.replace('"A"', '"B"')
    [one] = check(repository, files | {"outer/config.pbtxt": wrong})
    assert (one.rule, one.line, one.model) == ("ensemble", 5, "outer")
    assert "has no input 'B'" in one.text


def test_what_calls_a_broken_model_is_told_where_it_calls_it(repository):
    files = {"e/config.pbtxt": ENSEMBLE, "e/1/x": "", **ONNX_FILES, "n/config.pbtxt": "backend: 1"}
    findings = check(repository, files)
    assert [(one.model, one.line) for one in findings] == [("e", 9), ("e", 16), ("n", 1)]
    assert findings[0].text == "step 0 calls model 'n', which would not load"


def test_a_circle_is_told(repository):
    files = {
        "a/config.pbtxt": calls("a", ("b", "T0", "T1")),
        "b/config.pbtxt": calls("b", ("a", "T0", "T1")),
        "a/1/x": "",
        "b/1/x": "",
    }
    findings = check(repository, files)
    assert [(one.model, one.line) for one in findings] == [("a", 4), ("b", 4)]
    assert "calls itself: a → b → a" in findings[0].text
