"""Joining: decides whether the requests of a model are joined, from its configuration and verdict.

A configuration that gives dynamic_batching a number asks for it. Where it does not, requests are
joined only if the rows of the model are known to be independent.
"""

import logging

from inferd.config.model import ModelConfig
from inferd.core.rows import AS_CONFIGURED, DEPENDENT, INDEPENDENT, Joining, Verdict
from inferd.errors import InvalidConfig
from inferd.schedulers.execution.batch import BatchPlan

log = logging.getLogger("inferd.engine")

JOIN_PARAMETER = "inferd_join"
"""The config parameter that decides: "auto" (as described above), "always" or "never".

"quantised" is auto, but accepts that the scales of dynamic quantisation are those of all requests.
"""

_WORDS = ("auto", "quantised", "always", "never")


def joining_of(config: ModelConfig, verdict: Verdict, *, joins: bool) -> Joining:
    """Return whether requests are joined if the model's instances say `verdict` of its rows.

    `joins`: its backend gets a batch as one request. Otherwise the model gets requests side by
    side, and its author keeps them apart. Raises InvalidConfig for an unknown JOIN_PARAMETER.
    """
    word = _word_of(config)
    batching = config.dynamic_batching
    # Nothing to join, so nothing to decide.
    if batching is None or config.decoupled or config.max_batch_size < 2:
        return AS_CONFIGURED
    if word == "never":
        return Joining("alone", f"parameter {JOIN_PARAMETER} is never")
    if not joins:
        return Joining("joined", "the model itself gets several requests, and keeps them apart")
    if word == "always":
        return _wanted(f"parameter {JOIN_PARAMETER} is always", verdict)
    # Ragged inputs and batch_output are their author's word for how rows are told apart.
    if BatchPlan(config).reshapes:
        return Joining("joined", "its configuration says how inputs and outputs are joined")
    # Triton joins then, and numbers are a statement by somebody who knows the model.
    if not batching.is_adaptive:
        return _wanted("dynamic_batching gives numbers", verdict)
    if verdict.is_quantised and word == "quantised":
        return Joining("joined", f"parameter {JOIN_PARAMETER} is quantised: {verdict.reason}")
    if verdict.rows == DEPENDENT:
        return Joining("alone", verdict.reason or "its rows depend on each other")
    if verdict.rows == INDEPENDENT:
        return Joining("joined", verdict.reason or "its rows are independent")
    return Joining("compared", verdict.reason or "nothing is known of its rows")


def _word_of(config: ModelConfig) -> str:
    word = config.parameters.get(JOIN_PARAMETER) or "auto"
    if word not in _WORDS:
        msg = (
            f"model '{config.name}': parameter {JOIN_PARAMETER} is '{word[:100]}', "
            f"expected {', '.join(_WORDS[:-1])} or {_WORDS[-1]}"
        )
        raise InvalidConfig(msg, ("parameters", JOIN_PARAMETER))
    return word


def _wanted(why: str, verdict: Verdict) -> Joining:
    if verdict.rows != DEPENDENT:
        return Joining("joined", why)
    return Joining("joined", f"{why}, though {verdict.reason}", is_risky=True)


def tell_joining(config: ModelConfig, version: int, joining: Joining) -> None:
    """Log, if there is a choice, what was decided for a version that has just been loaded."""
    reason, hint, level = joining.reason, "", logging.INFO
    if joining.is_risky:
        what = "requests are joined, and one client's data may change the answers to others"
        level = logging.WARNING
    elif not reason:
        return
    elif joining.state == "joined":
        what = "requests are joined"
    elif joining.state == "compared":
        what = "each request runs alone until comparisons have shown that joining changes no answer"
    else:
        what = "each request runs alone"
        if config.parameters.get(JOIN_PARAMETER) != "never":
            hint = (
                f" (to have requests joined all the same, give dynamic_batching a size or a delay, "
                f"or set parameter {JOIN_PARAMETER} to always)"
            )
    log.log(level, "model '%s' version %d: %s: %s%s", config.name, version, what, reason, hint)
