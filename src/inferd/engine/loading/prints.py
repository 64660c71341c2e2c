"""Prints: what a version is made from, as the processes of a server compare it."""

import json
from dataclasses import replace
from hashlib import blake2b

from inferd.config.model import ModelConfig
from inferd.config.pbtxt import to_json


def config_print(config: ModelConfig) -> str:
    """Return a print of `config`, without what may change while a version serves."""
    # Processes may be at different counts for a moment, while a version is resized.
    lasting = to_json(replace(config, version_policy=None, instance_group=()))
    return blake2b(json.dumps(lasting).encode(), digest_size=8).hexdigest()
