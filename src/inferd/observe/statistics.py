"""The words of the Statistics extension, spelled as it spells them.

Durations are in nanoseconds, each with how many of them were added up.
"""

import msgspec


class Duration(msgspec.Struct):
    """`ns` is the sum of `count` durations."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Add one more."""
        self.count += 1
        self.ns += ns


class InferStatistics(msgspec.Struct):
    """What became of requests, and where the time of the successful ones went.

    `success` covers the whole request, from its queue to its answer. A request that shared its
    execution with others counts the whole of it, since it waited for all of it.
    """

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


class ResponseStatistics(msgspec.Struct):
    """The answers of a decoupled model that have the same place in their streams.

    `compute_infer` is the time since the answer before, or since the model began; `compute_output`
    the time until its reader asked for the next one. `success`, `fail`, `empty_response` and
    `cancel` say what became of it, each with both times.
    """

    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)
    success: Duration = msgspec.field(default_factory=Duration)
    fail: Duration = msgspec.field(default_factory=Duration)
    empty_response: Duration = msgspec.field(default_factory=Duration)
    cancel: Duration = msgspec.field(default_factory=Duration)


class BatchStatistics(msgspec.Struct):
    """The executions of one batch size; 1 stands for a model without batching, too."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class MemoryUsage(msgspec.Struct):
    """Memory a model holds: `type` is CPU, CPU_PINNED or GPU, `id` counts the devices of a type."""

    type: str
    id: int
    byte_size: int


class ModelStatistics(msgspec.Struct):
    """One model version. `last_inference` is in ms since 1970, 0 before the first execution.

    `inference_count` adds up batch sizes, `execution_count` counts what the model was run for.
    `response_stats` is keyed by the place of an answer in its stream, and empty unless the model
    is decoupled.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferStatistics
    response_stats: dict[str, ResponseStatistics]
    batch_stats: list[BatchStatistics]
    memory_usage: list[MemoryUsage]
