"""CacheSettings: where answers are kept, as --cache-config says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferd.errors import InvalidConfig

_FLAG = "--cache-config"
_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class LocalCacheSettings:
    """Answers are kept in this process, `size_bytes` of them with all that they need."""

    size_bytes: int


CacheSettings = LocalCacheSettings


def read_cache_config(texts: Sequence[str]) -> CacheSettings | None:
    """Return what the values of --cache-config, each CACHE,SETTING=VALUE, say together.

    None: nothing is kept. Raises InvalidConfig.
    """
    settings: dict[str, str] = {}
    names = set()
    for text in texts:
        name, _, setting = text.partition(",")
        key, equals, value = setting.partition("=")
        if not (name and key and equals):
            msg = f"{_FLAG} is '{text}', expected CACHE,SETTING=VALUE, as in local,size=1048576"
            raise InvalidConfig(msg)
        names.add(name)
        settings[key] = value
    if not names:
        return None
    if len(names) > 1:
        msg = f"{_FLAG} names the caches {', '.join(sorted(names))}; a server has one"
        raise InvalidConfig(msg)
    [name] = names
    if name != _LOCAL:
        msg = f"{_FLAG}: there is no cache '{name}', expected {_LOCAL}"
        raise InvalidConfig(msg)
    return _local(settings)


def _local(settings: Mapping[str, str]) -> LocalCacheSettings | None:
    if unknown := settings.keys() - {"size"}:
        msg = f"{_FLAG}: cache local has no setting '{min(unknown)}', expected size"
        raise InvalidConfig(msg)
    size_bytes = _number(settings, "size")
    return LocalCacheSettings(size_bytes) if size_bytes else None


def _number(settings: Mapping[str, str], key: str) -> int:
    text = settings[key]
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        msg = f"{_FLAG}: {key} is '{text}', expected a whole number of 0 or more"
        raise InvalidConfig(msg)
    return int(text)
