"""The data types of the Statistics extension, with the names it uses.

Durations are sums in nanoseconds, each with the number of durations added up.
"""

import msgspec


# Without references to others, so it can be in no cycle.
class Duration(msgspec.Struct, gc=False):
    """`ns` is the sum of `count` durations."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Add one duration."""
        self.count += 1
        self.ns += ns


# Its parts have no references of their own.
class InferStatistics(msgspec.Struct, gc=False):
    """The outcomes of requests, and where the time of the successful ones went.

    `success` covers the whole request, from the queue to the answer. A request that shared its
    execution with others counts all of the execution's time, since it waited for all of it.
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
    """The answers of a decoupled model at the same position in their streams.

    `compute_infer` is the time since the previous answer, or since the model began;
    `compute_output` is the time until the reader asked for the next one. `success`, `fail`,
    `empty_response` and `cancel` count the outcomes, each with the sum of both times.
    """

    compute_infer: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)
    success: Duration = msgspec.field(default_factory=Duration)
    fail: Duration = msgspec.field(default_factory=Duration)
    empty_response: Duration = msgspec.field(default_factory=Duration)
    cancel: Duration = msgspec.field(default_factory=Duration)


class BatchStatistics(msgspec.Struct, gc=False):
    """The executions of one batch size, which is 1 for models without batching."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class MemoryUsage(msgspec.Struct):
    """Memory a model holds: `type` is CPU, CPU_PINNED or GPU, `id` the device of that type."""

    type: str
    id: int
    byte_size: int


class ModelStatistics(msgspec.Struct):
    """One model version. `last_inference` is in ms since 1970, 0 before the first execution.

    `inference_count` is the sum of batch sizes, `execution_count` the number of executions.
    `response_stats` is keyed by the position of an answer in its stream, and empty unless the model
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
