"""Compiles the request path into the wheel if INFERD_COMPILED=1 is set.

The sources stay beside the compiled modules; without the variable neither a compiler nor the
dependencies below are needed (docs/decisions/0010-compiled.md).
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEEDED = [
    "mypy==2.4.1",
    "pybind11>=3",
    "setuptools>=70",
    *("msgspec", "numpy", "orjson"),  # for their types
]
CONFIG = Path(__file__).with_name("compile.ini")
MODULES = Path(__file__).with_name("compiled_modules.txt")
WORKER = "inferd_worker/"
WORKER_LIBRARY = "inferd_worker.native"
"""The worker's modules are a library of their own, in their package: worker processes load nothing
of the server, nor have the folder above on sys.path (docs/decisions/0048-worker-package.md)."""


class CompileHook(BuildHookInterface):
    """Adds compiled modules to a wheel; editable installs and source archives stay plain."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what compiling needs besides a C compiler."""
        return NEEDED if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel include the results and get this interpreter's tag."""
        if not self._is_wanted() or version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="inferd-compiled-"))
        compile_into(self._folder, Path(self.root))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for made in self._folder.rglob("*.so"):
            build_data["force_include"][str(made)] = str(made.relative_to(self._folder))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the compiled files, which are in the wheel now."""
        del version, build_data, artifact_path
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("INFERD_COMPILED") == "1"


def compile_into(folder: Path, root: Path) -> None:
    """Compile the modules of the tree `root` into `folder`, in the layout of the packages."""
    from mypyc.build import mypycify
    from pybind11.setup_helpers import ParallelCompile
    from setuptools import Distribution

    modules = MODULES.read_text().split()
    theirs = [one for one in modules if one.startswith(WORKER)]
    ours = [one for one in modules if one not in theirs]
    in_parallel = ParallelCompile(default=0)  # as many files at a time as there are cores
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(root / "src"), in_parallel:
        extensions = mypycify(
            [f"--config-file={CONFIG}", f"--cache-dir={work}/cache", *modules],
            opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),  # mypyc's own name for it
            debug_level="0",
            target_dir=f"{work}/c",
            separate=[(theirs, WORKER_LIBRARY), (ours, None)],
            multi_file=True,  # of one large file the compiler makes the same in thrice the time
        )
        for extension in extensions:
            # Looking for warnings takes longer than compiling. Each file of a library defines the
            # table of what it calls in the other, and means one.
            extension.extra_compile_args += ["-w", "-fcommon"]
            extension.include_dirs.append(f"{work}/c/{WORKER}")  # its headers name no folder
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder), f"{work}/objects"
        command.ensure_finalized()
        command.run()
