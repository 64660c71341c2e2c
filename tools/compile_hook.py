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
BOOTSTRAP = "inferd/backends/worker/bootstrap/"
SHARED = (f"{BOOTSTRAP}inferd_worker/packet.py", f"{BOOTSTRAP}inferd_worker/arena.py")
SOURCES = "inferd/backends/worker/bootstrap_sources"
TWIN = "inferd/backends/worker/bootstrap_compiled"
"""BOOTSTRAP is what worker processes import; the server imports the SHARED modules of it. Beside it
are copies for the workers: the SOURCES for any interpreter, and a TWIN with compiled modules for
the server's own (docs/decisions/0015-worker-processes.md)."""


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
        for made in [*self._folder.rglob("*.so"), *self._folder.rglob("*.py")]:
            build_data["force_include"][str(made)] = str(made.relative_to(self._folder))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the compiled files, which are in the wheel now."""
        del version, build_data, artifact_path
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("INFERD_COMPILED") == "1"


def compile_into(folder: Path, root: Path) -> None:
    """Compile the modules of the tree `root` into `folder`, in the layout of the package."""
    modules = MODULES.read_text().split()
    theirs = [one for one in modules if one.startswith(BOOTSTRAP)]
    ours = [one for one in modules if one in SHARED or one not in theirs]
    _compile(ours, root / "src", folder)
    twin = folder / TWIN
    for copy in (twin, folder / SOURCES):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src" / BOOTSTRAP, copy, ignore=unwanted)
        (copy / "__init__.py").unlink()  # not a package: workers have it on sys.path
    _compile([one[len(BOOTSTRAP) :] for one in theirs], twin, twin)


def _compile(modules: list[str], source: Path, folder: Path) -> None:
    from mypyc.build import mypycify
    from pybind11.setup_helpers import ParallelCompile
    from setuptools import Distribution

    in_parallel = ParallelCompile(default=0)  # as many files at a time as there are cores
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(source), in_parallel:
        extensions = mypycify(
            [f"--config-file={CONFIG}", *modules],
            opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),  # mypyc's own name for it
            debug_level="0",
            target_dir=f"{work}/c",
            multi_file=True,  # of one large file the compiler makes the same in thrice the time
        )
        for extension in extensions:  # looking for warnings takes longer than compiling
            extension.extra_compile_args.append("-w")
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder), f"{work}/objects"
        command.ensure_finalized()
        command.run()
