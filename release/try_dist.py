"""Tries what `make dist` has built as its user does: fresh environments, and no compiler."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT_CPU_S = 30
"""On a machine with nothing else to do this is less than a minute; a busy one must not fail."""
KERNEL = "from importlib.util import find_spec as f; print(f('ottla.record.native_kernel').origin)"


class Taken(NamedTuple):
    """What something took: seconds on the wall, and those of the processors."""

    elapsed_s: float
    cpu_s: float


class Stopwatch:
    """Measures what the programs take that are run from now on."""

    def __init__(self) -> None:
        self._begun = self._now()

    def taken(self) -> Taken:
        now = self._now()
        return Taken(now.elapsed_s - self._begun.elapsed_s, now.cpu_s - self._begun.cpu_s)

    def _now(self) -> Taken:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Taken(time.monotonic(), used.ru_utime + used.ru_stime)


def run(*words: object, folder: Path) -> str:
    """What a program prints, which must end well; it finds nothing but the usual tools."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={
            "PATH": str(tools(folder)),
            "HOME": str(folder),
            **{name: each for name, each in os.environ.items() if name.startswith("PIP_")},
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))}: status {done.returncode}")
    return done.stdout


def tools(folder: Path) -> Path:
    """A folder with the few programs that the scripts use, and no compiler."""
    place = folder / "tools"
    if not place.exists():
        place.mkdir()
        for name in ("sh", "dirname", "basename", "readlink", "nohup", "mkdir"):
            (place / name).symlink_to(f"/usr/bin/{name}" if name != "sh" else "/bin/sh")
        (place / "python3").symlink_to(sys._base_executable)
    return place


def first_test() -> str:
    """The first test of the page about tests, as it stands there."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install it with what it needs, and run the first test."""
    begun = Stopwatch()
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, "pytest", folder=folder)
    (folder / "test_first.py").write_text(first_test(), encoding="utf-8")
    said = run(python, "-m", "pytest", "-q", "test_first.py", folder=folder)
    taken = begun.taken()
    is_compiled = run(python, "-c", KERNEL, folder=folder).strip().endswith(".so")
    if is_compiled == wheel.name.endswith("-none-any.whl"):
        sys.exit(f"{wheel.name}: compiled kernels are {'' if is_compiled else 'not '}in use")
    report(wheel, taken, said.strip().splitlines()[-1])


def try_archive(archive: Path, folder: Path) -> None:
    """Unpack it, and run a script for the first time and for the second."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (home,) = folder.glob("ottla-*")
    script = home / "bin" / "kafka-topics.sh"
    begun = Stopwatch()
    said = run(script, "--version", folder=folder).splitlines()[-1]
    taken = begun.taken()
    begun = Stopwatch()
    run(script, "--version", folder=folder)
    report(archive, taken, f"{said}, again in {begun.taken().elapsed_s:.2f} s")


def report(path: Path, taken: Taken, said: str) -> None:
    print(f"{path.name}: {taken.elapsed_s:.1f} s ({taken.cpu_s:.1f} s of CPU): {said}", flush=True)
    if taken.cpu_s > LIMIT_CPU_S:
        sys.exit(f"{path.name}: more than {LIMIT_CPU_S} s of CPU")


def main() -> None:
    """Try the wheels and the archive."""
    dist = ROOT / "dist"
    wheels, (archive,) = sorted(dist.glob("*.whl")), dist.glob("*.tgz")
    for path, attempt in (*((wheel, try_wheel) for wheel in wheels), (archive, try_archive)):
        with tempfile.TemporaryDirectory() as folder:
            attempt(path, Path(folder))


if __name__ == "__main__":
    main()
