"""Tries what `make dist` has built as its user does: fresh environments, and no compiler.

The musllinux wheel needs a Python on musl, which MUSL_PYTHON names: it is used where it is, by a
path such as /tmp/musl/python/bin/python3 (`release/musl_python.sh` makes one). It gets what Ottla
and pytest depend on from this Python's pip, since it may have no certificates to ask PyPI with.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT_CPU_S = 30
"""On a machine with nothing else to do this is less than a minute; a busy one must not fail."""
SUFFIX = "from sysconfig import get_config_var as f; print(f('EXT_SUFFIX'))"
KERNELS = """
import sys
from ottla.record import kernel
for each in (kernel.decode_records, kernel.keep_records, kernel.ColumnBuilder, kernel.RowEncoder):
    print(sys.modules[each.__module__].__file__)
"""
"""The modules whose loops are in use: plain ones, or compiled ones that were loaded."""


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
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))}: status {done.returncode}")
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """The few variables that a user's shell has in any case."""
    own = {"PATH": str(tools(folder)), "HOME": str(folder)}
    return own | {name: each for name, each in os.environ.items() if name.startswith("PIP_")}


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
    page = (ROOT / "docs" / "start" / "testing.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install it with what it needs, and run the first test, on the Python that it is for."""
    if "-musllinux_" not in wheel.name:
        install_and_test(wheel, folder, sys.executable)
        return
    python = os.environ.get("MUSL_PYTHON")
    if not python:
        print(f"{wheel.name}: NOT TRIED, MUSL_PYTHON names no Python on musl", flush=True)
        return
    suffix = run(python, "-c", SUFFIX, folder=folder).strip()
    if not suffix.endswith("-linux-musl.so"):
        sys.exit(f"MUSL_PYTHON: {python} is not on musl, its modules end with {suffix}")
    download_for_musl(wheel, folder / "libs")
    install_and_test(wheel, folder, python, "--no-index", "--find-links", folder / "libs")


def download_for_musl(wheel: Path, libs: Path) -> None:
    """What it needs; a wheel for musllinux_1_1 is one for musllinux_1_2 as well."""
    platform = wheel.stem.split("-")[-1]
    platforms = ("--platform", platform, "--platform", platform.replace("_1_2_", "_1_1_"))
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:")
    run(
        *pip,
        *platforms,
        "-d",
        libs,
        "--find-links",
        wheel.parent,
        wheel,
        "pytest",
        folder=libs.parent,
    )


def install_and_test(wheel: Path, folder: Path, base: str, *options: object) -> None:
    """In an environment of its own, made by a Python; its pip gets these options."""
    begun = Stopwatch()
    run(base, "-m", "venv", folder / "venv", folder=folder)
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *options, wheel, "pytest", folder=folder)
    (folder / "test_first.py").write_text(first_test(), encoding="utf-8")
    said = run(python, "-m", "pytest", "-q", "test_first.py", folder=folder)
    taken = begun.taken()
    is_pure = wheel.name.endswith("-none-any.whl")
    ending = ".py" if is_pure else run(python, "-c", SUFFIX, folder=folder).strip()
    kernels = run(python, "-c", KERNELS, folder=folder).splitlines()
    if not all(kernel.endswith(ending) for kernel in kernels):
        sys.exit(f"{wheel.name}: {', '.join(kernels)} are in use")
    report(wheel, taken, f"{said.strip().splitlines()[-1]}, with {Path(kernels[0]).name}")


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
    try_connect(home, folder)


def try_connect(home: Path, folder: Path) -> None:
    """A line goes through a topic from file to file, by the scripts and files of the archive."""
    port = free_port()
    with (home / "config" / "connect-standalone.properties").open("a") as worker:
        worker.write(f"\nbootstrap.servers=localhost:{port}\nlisteners=http://127.0.0.1:0\n")
        worker.write(f"offset.storage.file.filename={folder}/connect.offsets\n")
    (home / "test.txt").write_text("foo\n")
    server = f"--override listeners=PLAINTEXT://localhost:{port} --override log.dirs={folder}/logs"
    connectors = [f"config/connect-file-{end}.properties" for end in ("source", "sink")]
    lines = (
        (
            "kafka-server-start.sh",
            ["config/server-alone.properties", *server.split()],
            " ready at ",
        ),
        (
            "connect-standalone.sh",
            ["config/connect-standalone.properties", *connectors],
            "connectors run",
        ),
    )
    begun, sink = Stopwatch(), home / "test.sink.txt"
    with contextlib.ExitStack() as stack:
        for script, words, ready in lines:
            log = folder / f"{script}.log"
            with log.open("wb") as out:
                process = subprocess.Popen(
                    [home / "bin" / script, *words],
                    cwd=home,
                    env=environment(folder),
                    stdout=out,
                    stderr=out,
                )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_for(lambda: ready in log.read_text(), process, log)  # noqa: B023 - called now
        wait_for(lambda: sink.exists() and sink.read_text() == "foo\n", process, log)
    report(home / "bin" / script, begun.taken(), "a line went from file to file")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once it holds; what the process has logged is shown if it ends, or in a minute."""
    end_s = time.monotonic() + 60
    while not condition():
        if process.poll() is not None or time.monotonic() > end_s:
            sys.exit(log.read_text())
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        return int(endpoint.getsockname()[1])


def report(path: Path, taken: Taken, said: str) -> None:
    print(f"{path.name}: {taken.elapsed_s:.1f} s ({taken.cpu_s:.1f} s of CPU): {said}", flush=True)
    if taken.cpu_s > LIMIT_CPU_S:
        sys.exit(f"{path.name}: more than {LIMIT_CPU_S} s of CPU")


def main() -> None:
    """Try the wheels and the archive."""
    dist = ROOT / "dist"
    wheels, (archive,) = sorted(dist.glob("ottla-*.whl")), dist.glob("*.tgz")
    for path, attempt in (*((wheel, try_wheel) for wheel in wheels), (archive, try_archive)):
        with tempfile.TemporaryDirectory() as folder:
            attempt(path, Path(folder))


if __name__ == "__main__":
    main()
