"""Resource limits: the amounts of shared resources, as given by --rate-limit-resource."""

from collections.abc import Mapping, Sequence

from inferd.errors import InvalidConfig

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
