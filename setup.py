"""Builds the compiled record kernel where a compiler and Cython are at hand; nothing needs it.

All other metadata is in pyproject.toml. `OTTLA_PURE=1` leaves the kernel out.
"""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """The extension modules, optional: if they cannot be built, plain ones do the work."""
    if os.environ.get("OTTLA_PURE", "") not in ("", "0"):
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


setup(
    ext_modules=extensions(),
    options={"build_ext": {"parallel": True}},
    exclude_package_data={"ottla.record": ["*.c", "*.pxd"]},
)
