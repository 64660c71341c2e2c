import pytest

from inferd.config.cache import LocalCacheSettings, read_cache_config
from inferd.errors import InvalidConfig


def test_the_local_cache_has_a_size():
    assert read_cache_config(["local,size=1048576"]) == LocalCacheSettings(1048576)


def test_the_last_of_several_sizes_counts():
    assert read_cache_config(["local,size=1", "local,size=2"]) == LocalCacheSettings(2)


@pytest.mark.parametrize("texts", [[], ["local,size=0"]])
def test_without_a_size_there_is_no_cache(texts):
    assert read_cache_config(texts) is None


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ([""], "expected CACHE,SETTING=VALUE"),
        (["local"], "expected CACHE,SETTING=VALUE"),
        (["local,size"], "expected CACHE,SETTING=VALUE"),
        (["size=1"], "expected CACHE,SETTING=VALUE"),
        (["local,size=1", "other,host=x"], "names the caches local, other; a server has one"),
        (["other,size=1"], "there is no cache 'other'"),
        (["local,siz=1"], "cache local has no setting 'siz', expected size"),
        (["local,size="], "size is '', expected a whole number"),
        (["local,size=-1"], "size is '-1'"),
        (["local,size=1e6"], "size is '1e6'"),
        (["local,size=٣"], "size is '٣'"),
        (["local,size=" + "9" * 5000], "size is '9999"),
    ],
)
def test_what_makes_no_sense_is_told(texts, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        read_cache_config(texts)
