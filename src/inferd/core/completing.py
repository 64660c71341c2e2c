"""CompletingBackend: how backends complete configurations from what model files declare."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_setting
from inferd.core.interfaces import BackendContext
from inferd.core.offline import OfflineReport
from inferd.core.signature import (
    DEFAULT_MAX_BATCH_SIZE,
    Signature,
    check_config,
    complete_config,
    signature_complaints,
)
from inferd.core.traits import Traits


class CompletingBackend:
    """Base of backends of frameworks whose files declare inputs and outputs.

    Such a framework runs a whole batch as one request, and several in different threads.
    """

    traits = Traits(is_bounded=True, is_concurrent=True, joins=True)

    def __init__(self) -> None:
        # For models that can batch and whose configuration does not set it.
        # Triton's default for models whose configuration is completed (default-max-batch-size).
        self._default_max_batch_size = 4

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""
        usual = self._default_max_batch_size
        self._default_max_batch_size = whole_setting(
            context.settings, DEFAULT_MAX_BATCH_SIZE, usual
        )

    def report_of(self, config: ModelConfig, signature: Signature) -> OfflineReport:
        """Return what a file with this `signature` tells of a model. Raises InvalidConfig."""
        completed = complete_config(config, signature, self._default_max_batch_size)
        complaints = [
            one._replace(text=one.text.lstrip(":, "))  # no name of a model stands before it
            for one in signature_complaints(completed, signature)
        ]
        return OfflineReport(completed, True, complaints, signature.verdict)

    def _complete_checked(self, config: ModelConfig, signature: Signature) -> ModelConfig:
        completed = complete_config(config, signature, self._default_max_batch_size)
        check_config(completed, signature)
        return completed


Marks = Mapping[str, Sequence[str]]
"""Names of tensors: of "declared" outputs and "unranked" inputs (ModelOutput, ModelInput)."""


def marks_of(config: ModelConfig) -> Marks:
    """Return what the messages of a configuration do not hold, for another process."""
    return {
        "declared": [one.name for one in config.output if one.is_declared],
        "unranked": [one.name for one in config.input if one.is_unranked],
    }


def marked(config: ModelConfig, marks: Marks) -> ModelConfig:
    """Return `config`, read from a message, with the marks it had."""
    unranked, declared = marks["unranked"], marks["declared"]
    return replace(
        config,
        input=tuple(replace(one, is_unranked=one.name in unranked) for one in config.input),
        output=tuple(replace(one, is_declared=one.name in declared) for one in config.output),
    )
