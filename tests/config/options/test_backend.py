"""The settings of --backend-config."""

from inferd.config.options.backend import settings_of


def test_a_backend_has_its_own_settings_and_those_of_all_the_last_of_a_name():
    given = ["a=1", "one,a=2", "two,a=3", "one,b=x,y=z", "c="]
    assert settings_of("one", given) == {"a": "2", "b": "x,y=z", "c": ""}
    assert settings_of("three", given) == {"a": "1", "c": ""}
