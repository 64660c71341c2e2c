from pathlib import Path

import pytest

from inferd.errors import InvalidConfig
from inferd.ray.spec_file import read_spec, read_spec_file

WHOLE = """\
name = "shop"

[groups.digits]
models = ["digits", "/models/letters", "s3://bucket/models"]
replicas = 3
cpus = 2
gpus = 0.5
memory = "1.5GiB"
resources = { fast_disk = 1 }
environment = { OMP_NUM_THREADS = "1" }
options = { http-max-connections = 100, load-model = ["a", "b"], model-control-mode = "explicit" }
surge = 0
ready-timeout-secs = 30

[groups.faces]
models = "faces"

[groups.faces.autoscale]
min = 0
max = 4
pending = 1.5
latency-ms = 50
"""


def read(text):
    return read_spec(text, "models.toml", Path("/models.d"))


def error(text):
    with pytest.raises(InvalidConfig) as raised:
        read(text)
    return raised.value.message


def test_everything_is_read():
    spec = read(WHOLE)
    digits, faces = spec.groups
    assert spec.name == "shop"
    assert digits.models == ("/models.d/digits", "/models/letters", "s3://bucket/models")
    assert (digits.scaling.least, digits.scaling.most) == (3, 3)
    assert digits.needs == {"CPU": 2, "GPU": 0.5, "memory": 1.5 * 2**30, "fast_disk": 1}
    assert digits.environment == {"OMP_NUM_THREADS": "1"}
    assert set(digits.arguments) == {
        "--http-max-connections=100",
        "--load-model=a",
        "--load-model=b",
        "--model-control-mode=explicit",
    }
    assert (digits.surge, digits.ready_timeout_s) == (0, 30)
    rule = faces.scaling
    assert (rule.least, rule.most, rule.pending, rule.latency_ms) == (0, 4, 1.5, 50)


def test_a_server_is_given_as_much_time_as_its_options_say():
    [group] = read('[groups.a]\nmodels = ["m"]\noptions = { exit-timeout-secs = 300 }\n').groups
    assert group.stop_timeout_s > 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[groups.a\n", "models.toml, line 1, column 10: "),
        ("", "models.toml: there is no group"),
        ("groups = 3", "models.toml, line 1: groups is 3, expected a table"),
        ("[groups]\na = 3", "models.toml, line 2: groups.a is 3, expected a table"),
        ("nam = 'a'\n[groups.a]\nmodels = 'm'", "line 1: nam is not known, did you mean name?"),
        ("[groups.a]\ncpus = 1", "models.toml, line 1: groups.a has no models"),
        ("[groups.A_b]\nmodels = 'm'", "line 1: groups.A_b is 'A_b', expected a name of a-z"),
        ("[groups.a]\nmodels = []", "line 2: groups.a.models is [], expected a list of paths"),
        ("[groups.a]\nmodels = ['m', 3]", "line 2: groups.a.models is ['m', 3], expected"),
        (
            "[groups.a]\nmodels = 'm'\n\ncpu = 1",
            "line 4: groups.a.cpu is not known, did you mean c",
        ),
        ("[groups.a]\nmodels = 'm'\ncpus = -1", "line 3: groups.a.cpus is -1, expected a number"),
        ("[groups.a]\nmodels = 'm'\ncpus = nan", "line 3: groups.a.cpus is nan, expected a num"),
        ("[groups.a]\nmodels = 'm'\ncpus = true", "line 3: groups.a.cpus is True, expected a num"),
        ("[groups.a]\nmodels = 'm'\ngpus = 1.5", "line 3: groups.a.gpus is 1.5, expected a part"),
        ("[groups.a]\nmodels = 'm'\nmemory = '4X'", "line 3: groups.a.memory is '4X', expected"),
        ("[groups.a]\nmodels = 'm'\nreplicas = 1.5", "line 3: groups.a.replicas is 1.5, expected"),
        ("[groups.a]\nmodels = 'm'\n[groups.a.resources]\nx = 'y'", "line 4: groups.a.resources.x"),
        (
            "[groups.a]\nmodels = 'm'\nresources = 3",
            "line 3: groups.a.resources is 3, expected a t",
        ),
        ("[groups.a]\nmodels = 'm'\nenvironment.X = 3", "line 3: groups.a.environment.X is 3, exp"),
        (
            "[groups.a]\nmodels = 'm'\nreplicas = 2\nautoscale = { max = 3 }",
            "line 3: groups.a.replicas and autoscale exclude each other",
        ),
        (
            "[groups.a]\nmodels = 'm'\n[groups.a.autoscale]\nmin = 3\nmax = 2",
            "line 5: groups.a.autoscale.max is 2, expected at least 3",
        ),
        (
            "[groups.a]\nmodels = 'm'\nautoscale.mx = 3",
            "line 3: groups.a.autoscale.mx is not known, did you mean max?",
        ),
        (
            "[groups.a]\nmodels = 'm'\n[groups.a.options]\nhttp-max-conections = 3",
            "line 4: groups.a.options.http-max-conections is no option of inferd serve, did you",
        ),
        (
            "[groups.a]\nmodels = 'm'\n[groups.a.options]\nhttp-max-connections = 'x'",
            "line 4: groups.a.options.http-max-connections: 'x' is not a whole number",
        ),
        (
            "[groups.a]\nmodels = 'm'\n[groups.a.options]\nhttp-port = 8000",
            "line 4: groups.a.options.http-port is not for replicas",
        ),
        (
            "[groups.a]\nmodels = 'm'\n[groups.a.options]\nload-model = ['x']",
            "line 3: groups.a.options: --load-model needs --model-control-mode=explicit",
        ),
        (
            "[groups.'a']\nmodels = 'm'\n[groups.b] # the second\nmodels = 'm'\nsurge = -1",
            "line 5: groups.b.surge is -1, expected a whole number",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_key(text, said):
    assert said in error(text)
    assert error(text).startswith("models.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidConfig, match=r"nowhere\.toml: cannot be read: No such file"):
        read_spec_file(tmp_path / "nowhere.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidConfig, match=r"odd\.toml: cannot be read: it is not UTF-8"):
        read_spec_file(tmp_path / "odd.toml")


def test_paths_begin_where_the_file_is(tmp_path):
    (tmp_path / "models.toml").write_text("[groups.a]\nmodels = 'm'\n")
    [group] = read_spec_file(tmp_path / "models.toml").groups
    assert group.models == (str(tmp_path / "m"),)
