"""CompletingBackend: how backends complete configurations from what model files declare."""

from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_setting
from inferd.core.interfaces import BackendContext
from inferd.core.signature import (
    DEFAULT_MAX_BATCH_SIZE,
    Signature,
    check_config,
    complete_config,
)


class CompletingBackend:
    """Base of backends of frameworks whose files declare inputs and outputs.

    Such a framework runs a whole batch as one request, and several in different threads.
    """

    bounded = True
    concurrent = True
    joins = True

    def __init__(self) -> None:
        # For models that can batch and whose configuration does not set it.
        self._default_max_batch_size = 4

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""
        usual = self._default_max_batch_size
        self._default_max_batch_size = whole_setting(
            context.settings, DEFAULT_MAX_BATCH_SIZE, usual
        )

    def _complete_checked(self, config: ModelConfig, signature: Signature) -> ModelConfig:
        completed = complete_config(config, signature, self._default_max_batch_size)
        check_config(completed, signature)
        return completed
