"""Options of what models run with, as lists of texts give them.

Settings of backends (--backend-config), processors (--host-policy), shared resources
(--rate-limit-resource), and how full a GPU may be before a load (--model-load-gpu-limit).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferd.errors import InvalidConfig


def settings_of(backend: str, given: Sequence[str]) -> dict[str, str]:
    """Return the --backend-config settings of `backend`: its own, and those for all backends."""
    found = {}
    for text in given:
        owner, comma, setting = text.partition(",")
        name, _, value = (setting if comma else text).partition("=")
        if not comma or owner == backend:
            found[name] = value
    return found


_HOST_POLICY = "--host-policy"
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
            policies[name] = replace(policy, node=_node(value, text))
        elif name and key == "cpu-cores":
            policies[name] = replace(policy, cores=read_cores(value, text))
        else:
            raise InvalidConfig(
                f"{_HOST_POLICY} is '{text}', expected POLICY,SETTING=VALUE with the setting "
                f"numa-node or cpu-cores"
            )
    return policies


def read_cores(value: str, text: str) -> frozenset[int]:
    """Return the numbers in a list of ranges; error messages quote `text`."""
    cores: set[int] = set()
    for part in value.strip().split(","):
        found = _RANGE.fullmatch(part)
        first = int(found[1]) if found else 0
        last = int(found[2] or found[1]) if found else -1
        if not first <= last < _MAX_CORE:
            raise InvalidConfig(f"{_HOST_POLICY} is '{text}', expected processors such as 0-3,8")
        cores.update(range(first, last + 1))
    return frozenset(cores)


def _node(value: str, text: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 5):
        raise InvalidConfig(f"{_HOST_POLICY} is '{text}', expected the number of a NUMA node")
    return int(value)


Limits = Mapping[tuple[str, int | None], int]
"""Amounts by name and device; None stands for each device, and for all devices together."""


def read_resources(texts: Sequence[str]) -> Limits:
    """Return the limits set by the values of --rate-limit-resource, each NAME:COUNT[:DEVICE].

    Device -1 is Triton's word for all. Raises InvalidConfig.
    """
    limits: dict[tuple[str, int | None], int] = {}
    for text in texts:
        name, *numbers = text.split(":")
        # So that -1 and a name without a device are one key: the limits of both are the same
        # amount.
        if len(numbers) == 2 and numbers[1] == "-1":
            numbers.pop()
        is_whole = name and all(n.isascii() and n.isdecimal() and len(n) < 10 for n in numbers)
        if not is_whole or len(numbers) not in (1, 2):
            msg = f"--rate-limit-resource is '{text}', expected NAME:COUNT or NAME:COUNT:DEVICE"
            raise InvalidConfig(msg)
        device = int(numbers[1]) if len(numbers) == 2 else None
        limits[name, device] = int(numbers[0])
    return limits


GpuLimits = Mapping[int, float]
"""By GPU, the share of its memory, from 0 to 1, that may be in use."""

# No sign and no exponent, and so neither NaN nor infinity.
_LIMIT = re.compile(r"([0-9]{1,4}):([0-9]{0,9}\.?[0-9]{0,9})")


def read_gpu_limits(texts: Sequence[str]) -> GpuLimits:
    """Return the limits set by the values of --model-load-gpu-limit, each DEVICE:FRACTION.

    Raises InvalidConfig.
    """
    limits: dict[int, float] = {}
    for text in texts:
        found = _LIMIT.fullmatch(text)
        share = found[2] if found else ""
        if not found or share in ("", ".") or float(share) > 1:
            msg = f"--model-load-gpu-limit is '{text}', expected DEVICE:FRACTION, such as 0:0.9"
            raise InvalidConfig(msg)
        limits[int(found[1])] = float(share)
    return limits


DELAY_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG_VARIABLE = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"

_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class DelayedStart:
    """How many requests must wait before a model that batches runs its first one.

    `backlog_count` is how many must wait in sequences that have no slot.
    """

    count: int = 0
    backlog_count: int = 0


NO_DELAY = DelayedStart()
"""Nothing is delayed."""


def read_delayed_start(environment: Mapping[str, str]) -> DelayedStart:
    """Return the delay set by the variables in `environment`. Raises InvalidConfig."""
    return DelayedStart(_count(environment, DELAY_VARIABLE), _count(environment, BACKLOG_VARIABLE))


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name) or "0"
    # isdecimal() alone is true for digits of every script.
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        msg = f"environment variable {name} is '{text[:99]}', expected a number of requests"
        raise InvalidConfig(msg)
    return int(text)
