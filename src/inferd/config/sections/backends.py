"""Options of backends, devices, caches and shared memory."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option

_backends = partial(option, group="Backends, devices and caches")


@dataclass(frozen=True, kw_only=True)
class BackendsSection:
    """What models run with."""

    backend_config: tuple[str, ...] = _backends(
        (),
        "[BACKEND,]SETTING=VALUE: a setting of one backend, or of all. May be repeated.",
        old_flags={
            "tf-allow-soft-placement": "tensorflow,allow-soft-placement={}",
            "tf-gpu-memory-fraction": "tensorflow,gpu-memory-fraction={}",
        },
    )
    backend_directory: str | None = _backends(
        None,
        "Folder of Python-based backends: NAME/model.py in it runs the models of backend NAME.",
    )
    confine_workers: bool = _backends(
        False,
        "Worker processes, in which models that are code run, have no network and write no files "
        "but temporary ones of their own. Needs Linux 6.12 with Landlock.",
    )
    worker_writable: tuple[str, ...] = _backends(
        (),
        "File, or folder with all in it, that worker processes may write although they are "
        "confined. May be repeated.",
        word="PATH",
    )
    cache_config: tuple[str, ...] = _backends(
        (),
        "CACHE,SETTING=VALUE: the response cache, for models whose configuration has "
        "response_cache { enable: true }. local,size=BYTES keeps answers in memory; "
        "redis,host=HOST with redis,port=PORT keeps them in Redis. May be repeated.",
        old_flags={"response-cache-byte-size": "local,size={}"},
    )
    # Not set: clients on the same machine may, clients over the network may not.
    allow_client_shm: bool | None = _backends(
        None,
        "Clients may register shared memory, which the server reads and writes as its own user.",
        shown="only when all ports bind this machine alone",
    )
    rate_limit: str = _backends(
        "off",
        "execution_count: hold back executions whose resources are in use.",
        choices=("off", "execution_count"),
    )
    rate_limit_resource: tuple[str, ...] = _backends(
        (), "NAME:COUNT[:DEVICE]: amount of a resource for --rate-limit. May be repeated."
    )
    host_policy: tuple[str, ...] = _backends(
        (),
        "POLICY,SETTING=VALUE: which processors instances run on. POLICY is the host_policy of an "
        "instance_group, otherwise cpu, model or gpu_0 and so on. SETTING is numa-node or "
        "cpu-cores. May be repeated.",
    )
    model_load_gpu_limit: tuple[str, ...] = _backends(
        (),
        "DEVICE:FRACTION: no model is loaded onto this GPU while more of its memory is in use. "
        "May be repeated.",
    )
