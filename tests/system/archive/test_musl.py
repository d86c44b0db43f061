"""The musllinux wheel is looked at before it is released: what musl would not load gets no tag."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import crc32c
import pytest
from release import musl

WHEEL = f"ottla-1.0-cp311-cp311-musllinux_1_2_{musl.MACHINE}.whl"
MODULE = f"ottla/record/native_kernel{musl.SUFFIX}"


def shared_object(*needed: str) -> bytes:
    """A file of ELF that has nothing but the names of the libraries that it needs."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    entries, at = [(musl.STRINGS, 0x1000)], 1
    for name in needed:
        entries.append((musl.NEEDED, at))
        at += len(name) + 1
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in (*entries, (0, 0)))
    start = 64 + 2 * 56
    strings_at = start + len(dynamic)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = segment(musl.LOAD, strings_at, 0x1000, len(strings))
    return header + load + segment(musl.DYNAMIC, start, 0x2000, len(dynamic)) + dynamic + strings


def segment(kind: int, offset: int, address: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, size, size, 8)


def wheel(folder: Path, image: bytes, *, name: str = WHEEL, module: str = MODULE) -> Path:
    """A wheel that has one compiled module."""
    with zipfile.ZipFile(folder / name, "w") as file:
        file.writestr("ottla/__init__.py", "")
        file.writestr(module, image)
    return folder / name


def glibc_module() -> bytes:
    """A compiled module of this machine's Python."""
    (path,) = Path(crc32c.__file__).parent.glob("*.so")
    return path.read_bytes()


def test_module_that_needs_musl_alone_is_taken(tmp_path):
    """A module may need musl by the name that its loader knows, or no library at all."""
    assert musl.faults(wheel(tmp_path, shared_object(musl.LIBC))) == []
    assert musl.faults(wheel(tmp_path, shared_object())) == []


@pytest.mark.parametrize("name", ["libc.so.6", "libpython3.11.so.1.0", "libgcc_s.so.1"])
def test_module_that_needs_another_library_is_refused(tmp_path, name):
    """A library that no system with musl must have is named."""
    assert musl.faults(wheel(tmp_path, shared_object(musl.LIBC, name))) == [
        f"{MODULE} needs {name}"
    ]


def test_module_for_glibc_is_refused_under_a_name_of_musl(tmp_path):
    """A real module for glibc needs versions of symbols, which the name does not hide."""
    found = musl.faults(wheel(tmp_path, glibc_module()))
    assert f"{MODULE} needs libc.so.6" in found
    assert f"{MODULE} needs symbols of version GLIBC_2.2.5" in found


def test_names_that_a_python_on_musl_does_not_look_for_are_refused(tmp_path):
    """Tag and suffix are those of musl: pip and the import system go by these."""
    name, module = WHEEL.replace("musllinux_1_2", "linux"), MODULE.replace("musl", "gnu")
    assert musl.faults(wheel(tmp_path, shared_object(), name=name, module=module)) == [
        f"{name} has no tag of musl",
        f"{module} does not end with {musl.SUFFIX}",
    ]


def test_what_is_no_elf_file_is_refused(tmp_path):
    """A file that only has the suffix of a module ends the build."""
    with pytest.raises(ValueError, match="no ELF file"):
        musl.faults(wheel(tmp_path, b"not compiled"))
