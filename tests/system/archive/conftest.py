"""The release archive, unpacked as its reader does it, with a cluster that its scripts started."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import venv
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from page import WORDS, Shell
from release import install, make_dist

from ottla.runtime.free_port import free_port

SCRIPT = re.compile(rf"bin/([\w-]+\.sh)({WORDS})?")
PORTS = ("2181", *(str(9092 + number) for number in range(8)))
BROKERS = range(8)


class ArchiveShell(Shell):
    """A shell in that folder. The second time that a script is called, what it calls is forked."""

    called: set[str]

    def __init__(self, folder: Path, translated: Callable[[str], str]) -> None:
        super().__init__(folder, translated)
        self.called = set()

    def program(self, line: str) -> list[str]:
        match = SCRIPT.fullmatch(line)
        if match is None or "-daemon" in line:
            return super().program(line)
        if match[1] not in self.called:
            self.called.add(match[1])
            return super().program(line)
        assert self.folder is not None
        # As bin/ottla has it, to which all scripts are links.
        self.environment["OTTLA_ZOOKEEPER_JARS"] = str(self.folder / "libs" / "zookeeper")
        words = shlex.split(line.removeprefix("bin/"))
        return [str(self.folder / ".venv" / "bin" / "python"), "-m", "ottla", *words]


class Reader:
    """Somebody in the folder of the archive, who types the lines of the articles.

    Ports and folders of these lines stand for those of the test; nothing else is changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {shown: str(free_port("127.0.0.1")) for shown in PORTS}
        self.shell = ArchiveShell(folder, self.translated)
        self.shell.environment.pop("OTTLA_PYTHON", None)

    @property
    def servers(self) -> str:
        return f"localhost:{self.ports['9092']}"

    def translated(self, text: str) -> str:
        text = re.sub(r"\b(2181|909[2-9])\b", lambda match: self.ports[match[0]], text)
        text = text.replace("PLAINTEXT://:", "PLAINTEXT://127.0.0.1:")
        return text.replace("/tmp/", f"{self.folder}/")

    def types(self, line: str, typed: str = "") -> list[str]:
        """The lines that a line of an article prints, which must end well."""
        return self.shell.run(line, typed)

    def fails(self, line: str) -> str:
        """What a line says that must not end well."""
        done = self.shell.ended(line)
        assert done.returncode == 1, (line, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def starts(self, line: str, ready: str = " is ready at ") -> list[str]:
        """Start a server in the background; what it prints until it is ready."""
        process = self.shell.begin(line, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        lines = []
        for text in process.stdout:
            lines.append(text.rstrip("\n"))
            if ready in text:
                return lines
        raise AssertionError((line, lines))

    def writes(self, name: str, text: str) -> None:
        """Edit a file as the article says."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(self.translated(text))


def fill_environment(home: Path, wheel: Path) -> None:
    """What the first run of a script makes, without a download: just what the installer asks for.

    The packages are those of these tests, one by one; no other is there. `make dist` tries the
    first run itself.
    """
    place = home / ".venv"
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    python = [place / "bin" / "python", "-P", "-c", install.NEEDS]
    needs = subprocess.run(python, capture_output=True, text=True, check=True).stdout
    for package in with_their_own(needs.split("\n")[:-1]):
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / name).symlink_to(package.locate_file(name))
    (place / "ready").touch()


def with_their_own(needs: list[str]) -> list[Distribution]:
    """The packages that these lines ask for, and those that they need themselves."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(each) for each in needs]
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        waiting += map(Requirement, found[name].requires or ())
    return list(found.values())


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> Path:
    """`ottla-<version>.tgz` with a wheel of this checkout that is not compiled.

    All workers of pytest-xdist use the one that the first of them has made.
    """
    place = tmp_path_factory.getbasetemp()
    out = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "dist"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = out / "made"
        if not made.exists():
            wheel = make_dist.wheel(make_dist.sdist(out), out, "pure")
            made.write_text(str(make_dist.archive([wheel], out, offline=True)))
    return Path(made.read_text())


@pytest.fixture(scope="session")
def home(archive, tmp_path_factory) -> Path:
    """The folder that is there after `tar -xzf` and `cd`."""
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run(["tar", "-xzf", archive], cwd=folder, check=True)
    (home,) = folder.iterdir()
    (wheel,) = home.glob("libs/ottla-*.whl")
    fill_environment(home, wheel)
    return home


@pytest.fixture(scope="session")
def reader(java, home) -> Iterator[Reader]:
    """In the folder of the archive, after ZooKeeper and eight brokers have been started."""
    reader = Reader(home)
    try:
        start_cluster(reader)
        yield reader
    finally:
        reader.shell.close()


def start_cluster(reader: Reader) -> None:
    """ZooKeeper, the brokers 0 to 2 of the quick start, and 3 to 7 of the operator's chapter."""
    reader.writes("config/zookeeper.properties", "clientPortAddress=127.0.0.1\n")
    path = reader.folder / "config" / "zookeeper.properties"
    path.write_text(reader.translated(path.read_text()))
    own = reader.folder / "config" / "server.properties"
    own.write_text(reader.translated(own.read_text()))
    reader.writes(
        "config/server.properties",
        # The article waits six seconds until a dead broker is missed.
        "listeners=PLAINTEXT://:9092\nzookeeper.session.timeout.ms=4000\n",
    )
    reader.starts("bin/zookeeper-server-start.sh config/zookeeper.properties")
    reader.first_lines = reader.starts("bin/kafka-server-start.sh config/server.properties")
    for number in BROKERS[1:]:
        name = f"config/server-{number}.properties"
        reader.types(f"cp config/server.properties {name}")
        reader.writes(
            name,
            f"broker.id={number}\n"
            f"listeners=PLAINTEXT://:{9092 + number}\n"
            f"log.dirs=/tmp/kafka-logs-{number}\n",
        )
        reader.starts(f"bin/kafka-server-start.sh {name}")
