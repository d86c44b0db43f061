"""Builds the record kernels, where that is possible, and the core, where it is asked for.

All other metadata is in pyproject.toml. `OTTLA_PURE=1` leaves the kernels out, which nothing needs;
`OTTLA_COMPILED=1` compiles the modules of `release/core.txt` as well, or fails.
"""

from __future__ import annotations

import os
import sys
from contextlib import chdir
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent


def is_set(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def kernels() -> list[Extension]:
    """The extension modules, optional: if they cannot be built, plain ones do the work."""
    if is_set("OTTLA_PURE"):
        return []
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        return []
    modules = [
        Extension(
            f"ottla.record.{name}",
            [f"src/ottla/record/{name}.py"],
            depends=[
                "src/ottla/record/native_cursor.pxd",
                "src/ottla/record/native_kernel.pxd",
            ],
        )
        for name in ("native_kernel", "native_columns", "native_compaction", "native_rows")
    ]
    try:
        built: list[Extension] = cythonize(modules, quiet=True)
    except CompileError as error:
        left_out(error)
        return []
    for module in built:
        module.optional = True  # cythonize loses it
    return built


def left_out(error: Exception) -> None:
    print(f"the record kernel is left uncompiled: {error}", file=sys.stderr)


def core() -> list[Extension]:
    """One library with the core's modules, and a small module beside the source of each."""
    if not is_set("OTTLA_COMPILED"):
        return []
    from mypyc.build import mypycify

    build = ROOT / "build" / "core"
    options = [
        f"--config-file={ROOT / 'pyproject.toml'}",
        f"--python-version={sys.version_info[0]}.{sys.version_info[1]}",
        f"--cache-dir={build / 'types'}",
    ]
    modules = (ROOT / "release" / "core.txt").read_text(encoding="utf-8").split()
    # Tracebacks show the line of a file that is found from a folder where modules are imported.
    with chdir(ROOT / "src"):
        built: list[Extension] = mypycify(
            [*options, *modules],
            group_name="ottla_core",
            target_dir=str(build),
            multi_file=True,
            debug_level="0",
        )
    return built


setup(
    ext_modules=[*kernels(), *core()],
    options={"build_ext": {"parallel": True}},
    exclude_package_data={"ottla.record": ["*.c", "*.pxd"]},
)
