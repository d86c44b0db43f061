"""Finds the Java runtime for Spark and ZooKeeper, or names the package to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

MIN_JAVA = 17
PACKAGE = "openjdk-17-jre-headless"
VERSION = re.compile(r'version "(?:1\.)?(\d+)')
VERSION_TIMEOUT_S = 30


class JavaMissingError(Exception):
    """No Java is new enough; the text names the package to install."""


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` program, from JAVA_HOME or PATH; raises JavaMissingError if missing or old."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise JavaMissingError(f"JAVA_HOME={home} has no bin/java: {_advice()}")
    else:
        found = shutil.which("java", path=environment.get("PATH"))
        if found is None:
            raise JavaMissingError(f"Java is missing: {_advice()}")
        program = Path(found)
    version = java_version(program)
    if version < MIN_JAVA:
        raise JavaMissingError(f"{program} is Java {version}, which is too old: {_advice()}")
    return program


def java_version(program: Path) -> int:
    """The major version; 0 where the program does not say one."""
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0


def _advice() -> str:
    return (
        f"Spark and ZooKeeper need Java {MIN_JAVA} or newer; install it, on Debian and Ubuntu with "
        f"'apt-get install {PACKAGE}'"
    )
