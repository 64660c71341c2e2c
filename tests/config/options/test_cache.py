import pytest

from inferd.config.options.cache import LocalCacheSettings, RedisCacheSettings, read_cache_config
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
        (["other,size=1"], "there is no cache 'other', expected local or redis"),
        (["redis,port=1"], "cache redis needs a host"),
        (["redis,host=", "redis,port=1"], "cache redis needs a host"),
        (["redis,host=h", "redis,port=65536"], "port is '65536', expected .* from 0 to 65535"),
        (["redis,host=h", "redis,prt=1"], "cache redis has no setting 'prt', expected host, port"),
        (["redis,host=h", "redis,db=x"], "db is 'x'"),
        (["redis,host=h", "redis,tls_enabled=maybe"], "tls_enabled is 'maybe'"),
        (["local,siz=1"], "cache local has no setting 'siz', expected size"),
        (["local,size="], "size is '', expected a whole number"),
        (["local,size=-1"], "size is '-1'"),
        (["local,size=1e6"], "size is '1e6'"),
        (["local,size=٣"], "size is '٣'"),
        (["local,size=" + "9" * 5000], "size is '9999"),
    ],
)
def test_what_makes_no_sense_is_reported(texts, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        read_cache_config(texts)


def redis(*settings, **environment):
    return read_cache_config([f"redis,{one}" for one in ("host=h", *settings)], environment)


def test_redis_needs_a_host_and_has_defaults_that_end():
    found = redis()
    assert (found.host, found.port, found.user, found.password, found.db) == (
        "h", 6379, None, None, 0,
    )  # fmt: skip
    assert min(found.connect_timeout_s, found.socket_timeout_s, found.wait_timeout_s) > 0
    assert not found.tls


def test_all_settings_of_redis():
    assert redis(
        "port=1", "user=u", "password=a,b=c", "db=2", "connect_timeout=3000", "socket_timeout=4",
        "pool_size=5", "wait_timeout=60", "tls_enabled=true", "cacert=ca", "cert=c", "key=k",
    ) == RedisCacheSettings(
        "h", 1, "u", "a,b=c", 2, 3.0, 0.004, 5, 0.06, True, "ca", "c", "k"
    )  # fmt: skip


def test_zero_stands_for_the_default_not_for_forever():
    zeros = ("connect_timeout=0", "socket_timeout=0", "wait_timeout=0", "pool_size=0")
    assert redis(*zeros) == redis()


def test_the_environment_has_the_user_and_the_password_unless_they_are_set():
    environment = {"TRITONCACHE_REDIS_USERNAME": "eve", "TRITONCACHE_REDIS_PASSWORD": "secret"}
    found = redis(**environment)
    assert (found.user, found.password) == ("eve", "secret")
    found = redis("user=u", "password=p", **environment)
    assert (found.user, found.password) == ("u", "p")


def test_a_password_is_never_shown():
    assert "secret" not in repr(redis("password=secret"))
    with pytest.raises(InvalidConfig) as caught:
        read_cache_config(["redispassword=secret"])
    assert "secret" not in caught.value.message
