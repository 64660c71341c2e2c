"""CacheSettings: where answers are kept, as given by --cache-config.

Caches, settings and units are Triton's. Its Redis cache has no timeouts by default; here timeouts
have finite defaults, and 0 stands for these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferd.config.options.option import BOOLEANS
from inferd.errors import InvalidConfig

USER_VARIABLE = "TRITONCACHE_REDIS_USERNAME"
PASSWORD_VARIABLE = "TRITONCACHE_REDIS_PASSWORD"

_FLAG = "--cache-config"
# Fits in 64 bits, and int() of thousands of digits takes quadratic time.
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class LocalCacheSettings:
    """Answers are kept in this process, in at most `size_bytes` including all overhead."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class RedisCacheSettings:
    """Answers are kept by a Redis server, which decides how many and for how long.

    `connect_timeout_s` and `socket_timeout_s` limit the wait for a connection and for an answer,
    `wait_timeout_s` that for one of `pool_size` connections. The paths are those of PEM files: the
    authorities that sign the server's certificate, and this client's own certificate and key.
    """

    host: str
    port: int
    user: str | None = None
    # A traceback or a debug line of the settings must not show it.
    password: str | None = field(default=None, repr=False)
    db: int = 0
    # A cache has to be faster than the model: one that answers later is passed over, and its
    # request runs.
    connect_timeout_s: float = 1.0
    socket_timeout_s: float = 0.25
    pool_size: int = 10
    wait_timeout_s: float = 0.1
    tls: bool = False
    ca_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None


CacheSettings = LocalCacheSettings | RedisCacheSettings


def read_cache_config(
    texts: Sequence[str], environment: Mapping[str, str] | None = None
) -> CacheSettings | None:
    """Return the cache set by the values of --cache-config, each CACHE,SETTING=VALUE.

    `environment` may hold the user and password for Redis; settings take precedence over it. None
    means no cache. Raises InvalidConfig, which never quotes a value that may be a secret.
    """
    settings: dict[str, str] = {}
    names = set()
    for text in texts:
        name, _, setting = text.partition(",")
        key, equals, value = setting.partition("=")
        if not (name and key and equals):
            # Only what is before the first "=": the rest may be a password.
            said = text.partition("=")[0]
            msg = f"{_FLAG} is '{said}', expected CACHE,SETTING=VALUE, as in local,size=1048576"
            raise InvalidConfig(msg)
        names.add(name)
        settings[key] = value
    if not names:
        return None
    if len(names) > 1:
        msg = f"{_FLAG} names the caches {', '.join(sorted(names))}; a server has one"
        raise InvalidConfig(msg)
    [name] = names
    if name == "local":
        size_bytes = _CacheOptions(name, settings, ("size",)).number("size")
        # A cache without room would look up and store in vain.
        return LocalCacheSettings(size_bytes) if size_bytes else None
    if name == "redis":
        return _redis(_CacheOptions(name, settings, _REDIS), environment or {})
    raise InvalidConfig(f"{_FLAG}: there is no cache '{name}', expected local or redis")


class _CacheOptions:
    """The settings of one cache, as strings."""

    def __init__(self, cache: str, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._given = given
        if unknown := given.keys() - set(known):
            raise InvalidConfig(
                f"{_FLAG}: cache {cache} has no setting '{min(unknown)}', "
                f"expected {', '.join(known)}"
            )

    def text(self, key: str) -> str | None:
        # An empty text, as from "$UNSET" in a script, is no setting.
        return self._given.get(key) or None

    def number(self, key: str, default: int | None = None, most: int | None = None) -> int:
        text = self._given.get(key, "" if default is None else str(default))
        is_whole = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
        if not is_whole or (most is not None and int(text) > most):
            limit = "of 0 or more" if most is None else f"from 0 to {most}"
            raise InvalidConfig(f"{_FLAG}: {key} is '{text}', expected a whole number {limit}")
        return int(text)

    def seconds(self, key: str, default_s: float) -> float:
        # Triton gives them in milliseconds.
        return self.number(key, 0) / 1000 or default_s

    def switch(self, key: str) -> bool:
        text = self._given.get(key, "false")
        value = BOOLEANS.get(text.lower())
        if value is None:
            raise InvalidConfig(f"{_FLAG}: {key} is '{text}', expected true or false")
        return value


_REDIS = (
    "host",
    "port",
    "user",
    "password",
    "db",
    "connect_timeout",
    "socket_timeout",
    "pool_size",
    "wait_timeout",
    "tls_enabled",
    "cacert",
    "cert",
    "key",
)


def _redis(settings: _CacheOptions, environment: Mapping[str, str]) -> RedisCacheSettings:
    host = settings.text("host")
    if host is None:
        raise InvalidConfig(f"{_FLAG}: cache redis needs a host, as in redis,host=localhost")
    default = RedisCacheSettings(host, 0)
    return RedisCacheSettings(
        host,
        settings.number("port", 6379, most=65535),
        settings.text("user") or environment.get(USER_VARIABLE),
        settings.text("password") or environment.get(PASSWORD_VARIABLE),
        settings.number("db", 0),
        settings.seconds("connect_timeout", default.connect_timeout_s),
        settings.seconds("socket_timeout", default.socket_timeout_s),
        # 0 would be a pool that never has a connection.
        settings.number("pool_size", 0) or default.pool_size,
        settings.seconds("wait_timeout", default.wait_timeout_s),
        settings.switch("tls_enabled"),
        settings.text("cacert"),
        settings.text("cert"),
        settings.text("key"),
    )
