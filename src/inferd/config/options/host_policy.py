"""HostPolicy: which processors instances run on, as given by --host-policy."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferd.errors import InvalidConfig

_FLAG = "--host-policy"
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
# More than any machine has; a range of billions would fill the memory before anybody looked at it.
_MAX_CORE = 1 << 14


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The processors `cores`, or, if that is empty, those of the NUMA node `node`."""

    cores: frozenset[int] = frozenset()
    node: int | None = None


HostPolicies = Mapping[str, HostPolicy]
"""By name; cpu, model, gpu_0 and so on are for instances whose group names no policy."""


def read_host_policies(texts: Sequence[str]) -> dict[str, HostPolicy]:
    """Return the policies set by the values of --host-policy, each POLICY,SETTING=VALUE.

    Settings are numa-node, a number, and cpu-cores, such as 0-3,8. Raises InvalidConfig.
    """
    policies: dict[str, HostPolicy] = {}
    for text in texts:
        name, _, setting = text.partition(",")
        key, _, value = setting.partition("=")
        # Both settings of one policy are given apart, and cpu-cores wins where they contradict.
        policy = policies.get(name, HostPolicy())
        if name and key == "numa-node":
            policies[name] = replace(policy, node=_number(value, text))
        elif name and key == "cpu-cores":
            policies[name] = replace(policy, cores=read_cores(value, text))
        else:
            msg = (
                f"{_FLAG} is '{text}', expected POLICY,SETTING=VALUE with the setting numa-node "
                f"or cpu-cores"
            )
            raise InvalidConfig(msg)
    return policies


def read_cores(value: str, text: str) -> frozenset[int]:
    """Return the numbers in a list of ranges; error messages quote `text`."""
    cores: set[int] = set()
    for part in value.strip().split(","):
        found = _RANGE.fullmatch(part)
        first = int(found[1]) if found else 0
        last = int(found[2] or found[1]) if found else -1
        if not first <= last < _MAX_CORE:
            msg = f"{_FLAG} is '{text}', expected processors such as 0-3,8"
            raise InvalidConfig(msg)
        cores.update(range(first, last + 1))
    return frozenset(cores)


def _number(value: str, text: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 5):
        msg = f"{_FLAG} is '{text}', expected the number of a NUMA node"
        raise InvalidConfig(msg)
    return int(value)
