"""Fetches the pinned peers with the package clients of their languages, once, into `.peers/`.

What is fetched is named by files in tests/peers (pom.xml, go.mod, package-lock.json); a change
of those fetches again. A missing tool skips the tests that need it, and says what to install.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "tests" / "peers"
CACHE = ROOT / ".peers"
FETCH_SECONDS = 600


def require(program: str, hint: str) -> str:
    """The path of a program, or a skipped test."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is missing: install {hint}")
    return path


def run(command: list[str], **options: object) -> None:
    """Run a package client or a compiler; its words are shown when it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"


def made_from(sources: Iterable[Path], target: Path, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills from the sources: kept until one of them changes."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources)))
    stamp = target / ".made-from"
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        make(target)
        stamp.write_text(digest.hexdigest())
    return target


def kafka_jars(version: str) -> Path:
    """The folder with the jars of Apache Kafka and of all that it needs."""
    return maven_jars(f"kafka-{version}")


def maven_jars(name: str) -> Path:
    """The folder with the jars that `java/<name>/pom.xml` lists."""
    require("java", "a Java runtime, 17 or newer")
    maven = require("mvn", "Maven")
    pom = PEERS / "java" / name / "pom.xml"

    def fetch(target: Path) -> None:
        repository = f"-Dmaven.repo.local={CACHE / 'm2'}"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        run([maven, "-q", "-B", repository, "-f", str(pom), *goal])

    return made_from([pom], CACHE / name, fetch)


def jar_settings(name: str) -> dict[str, str]:
    """The settings by which a Spark session has those jars."""
    jars = sorted(map(str, maven_jars(name).glob("*.jar")))
    paths = dict.fromkeys(
        ("spark.driver.extraClassPath", "spark.executor.extraClassPath"), ":".join(jars)
    )
    return {"spark.jars": ",".join(jars), **paths}


def compiled_java(version: str) -> Path:
    """The folder with the classes of `java/*.java`, compiled against that version's clients."""
    compiler = require("javac", "a Java development kit, 17 or newer")
    jars = kafka_jars(version)
    sources = sorted((PEERS / "java").glob("*.java"))

    def compile_to(target: Path) -> None:
        run([compiler, "-cp", f"{jars}/*", "-d", str(target), *map(str, sources)])

    return made_from(sources, CACHE / f"classes-{version}", compile_to)


def compiled_go() -> Path:
    """The folder with the program of `go/`: `peers franz-go ...` and `peers sarama ...`."""
    go = require("go", "Go, 1.26 or newer")
    folder = PEERS / "go"
    sources = [*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"]
    caches = {"GOPATH": str(CACHE / "go"), "GOCACHE": str(CACHE / "go-build")}

    def build(target: Path) -> None:
        environment = {**os.environ, **caches, "GOFLAGS": "-modcacherw -mod=readonly"}
        run([go, "build", "-o", str(target / "peers"), "."], cwd=folder, env=environment)

    return made_from(sources, CACHE / "go-peers", build)


def installed_node_modules() -> Path:
    """The folder with `js/peer.mjs` and the packages that it needs."""
    npm = require("npm", "Node.js, 20 or newer, with npm")
    sources = [PEERS / "js" / name for name in ("package.json", "package-lock.json", "peer.mjs")]

    def install(target: Path) -> None:
        for source in sources:
            shutil.copy(source, target)
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--cache", str(CACHE / "npm")]
        run([npm, "ci", *options], cwd=target)

    return made_from(sources, CACHE / "js-peers", install)
