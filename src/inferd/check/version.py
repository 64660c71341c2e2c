"""Checks one version of a model as the server loads it, short of its framework.

The order is that of the server's loader: files, what the file tells, the configuration completed by
it, labels, warm-up samples, instances, schedulers.
"""

from inferd.check.model import ModelCheck
from inferd.config.checks import config_complaints, instance_complaints
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.platform import is_python_based
from inferd.core.interfaces import Backend, ModelFiles, is_in_worker
from inferd.core.offline import OfflineBackend, OfflineReport
from inferd.core.processes import ALONE
from inferd.core.rows import Joining
from inferd.engine.loading.homes import home_of
from inferd.engine.loading.joining import joining_of
from inferd.engine.loading.load import check_timeout, counts_of, may_run_inline
from inferd.engine.loading.lookup import finder_of, offline_backend
from inferd.engine.loading.opening import samples_of
from inferd.engine.loading.scheduling import as_executed, queue_policy
from inferd.errors import InferdError, InvalidConfig, Unsupported
from inferd.repository.contents import read_labels
from inferd.repository.layout import files_of, placements
from inferd.repository.slips import pointer_instead
from inferd.schedulers.sequence_parts.tensors import States


def check_version(check: ModelCheck, version: int) -> None:
    """Add what is wrong with a version of a model that could be found.

    Sets the configuration of `check` to what would be served.
    """
    config = check.model.config
    # Ensembles are checked when all models are known.
    if config is None or config.ensemble_scheduling is not None:
        return
    report = None
    with check.noting("file"):
        files = files_of(check.model, version, config)
        backend = _backend(check, config)
        report = _report(config, files, backend)
        check.add_complaints(report.complaints, "file")
    # Something was raised, and is noted: nothing further can be told.
    if report is None:
        return
    config = report.config
    with check.noting("config"):
        config = normalised(config, config.name, check.gpu_count)
    check.complete(config, is_complete=report.is_complete)
    check.add_complaints(config_complaints(config))
    check.add_complaints(instance_complaints(config))
    check.add_complaints(check.io_complaints(config))
    _check_files(check, files, config)
    _check_executed(check, files, config)
    if backend is not None:
        _check_run(check, config, backend, report)


def _backend(check: ModelCheck, config: ModelConfig) -> Backend | None:
    """Return the model's backend, None if its package is not installed here."""
    path = ("backend",) if check.says("backend") else ("platform",)
    try:
        return finder_of(config)(config.backend, None)
    except Unsupported as error:
        check.add_warning(error.message, "package", path)
        return None
    except InvalidConfig as error:
        error.path = error.path or path
        raise


def _report(config: ModelConfig, files: ModelFiles, backend: Backend | None) -> OfflineReport:
    """Return what the model's file tells without its framework."""
    reader: object = backend
    # A model of a Python-based backend has no file of a framework.
    if not is_python_based(config):
        reader = offline_backend(config.backend)
    if not isinstance(reader, OfflineBackend):
        return OfflineReport(config, is_complete=bool(config.input and config.output))
    try:
        return reader.read_offline(files, config)
    except InferdError as error:
        error.args = (error.message + pointer_instead(files.file), *error.args[1:])
        raise


def _check_files(check: ModelCheck, files: ModelFiles, config: ModelConfig) -> None:
    """Check what the configuration names in the model's folder."""
    with check.noting("file"):
        read_labels(files.folder, config)
    # Each step by itself, so one error does not hide those of the next.
    with check.noting("config"):
        samples_of(files.folder, config)
    with check.noting("config"):
        as_executed(config)
        States(config, files.folder)


def _check_executed(check: ModelCheck, files: ModelFiles, config: ModelConfig) -> None:
    """Compare the model's file with all that it is given, controls and states of sequences too."""
    if config.sequence_batching is None or check.is_refused:
        return
    with check.noting("file"):
        report = _report(as_executed(config), files, None)
        counts = {"input": len(config.input), "output": len(config.output)}
        for complaint in report.complaints:
            top, *rest = complaint.path or ("",)
            # Tensors beyond the configuration's own are those that the scheduler adds.
            is_own = not rest or (isinstance(rest[0], int) and rest[0] < counts.get(str(top), 0))
            path = complaint.path if is_own else ("sequence_batching",)
            check.add_problem(complaint.text, "file", path)


def _check_run(
    check: ModelCheck, config: ModelConfig, backend: Backend, report: OfflineReport
) -> None:
    """Check how the model would be run."""
    with check.noting("config"):
        places, warnings = placements(config, check.gpu_count)
        for text in warnings:
            check.add_warning(text, path=("instance_group",))
        # For its errors alone; see the server's loader.
        home_of(config, backend, places, ALONE, is_limited=False)
    with check.noting("config"):
        check_timeout(config, are_remote=is_in_worker(backend, config))
    with check.noting("config"):
        may_run_inline(config, backend, ())
    with check.noting("config"):
        counts_of(config, with_summaries=False, with_histograms=False)
        _tell_histograms(check, config)
    if config.sequence_batching is not None:
        with check.noting("config"):
            queue_policy(config)
    with check.noting("config"):
        joining = joining_of(config, report.verdict, joins=backend.traits.joins)
        if report.is_complete:
            _tell_joining(check, joining)


def _tell_histograms(check: ModelCheck, config: ModelConfig) -> None:
    """Warn of what a server with histograms would refuse."""
    try:
        counts_of(config, with_summaries=False, with_histograms=True)
    except InvalidConfig as error:
        text = error.message.removeprefix(f"model '{config.name}': ")
        text = f"histograms cannot be counted (--metrics-config): {text}"
        check.add_warning(text, path=error.path)


def _tell_joining(check: ModelCheck, joining: Joining) -> None:
    path = ("dynamic_batching",)
    if joining.is_risky:
        text = "requests are joined, and one client's data may change the answers to others"
        fix = "leave the numbers of dynamic_batching out, or set parameter inferd_join to never"
        check.add_warning(f"{text}: {joining.reason}", path=path, fix=fix)
    elif joining.state == "compared":
        text = "each request runs alone until comparisons have shown that joining changes no answer"
        fix = "if its rows do not depend on each other, set parameter inferd_join to always"
        check.add_warning(f"{text}: {joining.reason}", path=path, fix=fix)
    elif joining.never_joins and check.says("dynamic_batching"):
        text = "dynamic_batching has no effect, each request runs alone"
        check.add_warning(f"{text}: {joining.reason}", path=path)
