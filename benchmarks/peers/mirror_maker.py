"""Apache Kafka's MirrorMaker 2 in its dedicated mode, in a JVM of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from benchmarks.peers.downloads import maven_jars

SHUTDOWN_SECONDS = 60
CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
HEAP = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC", "-Xshare:auto")
"""What Kafka's own script gives it."""


class MirrorMaker:
    """The process of one mm2.properties, from `start` to `stop`."""

    def __init__(self, properties: Mapping[str, str], folder: Path, name: str = "mm2") -> None:
        self.file = folder / f"{name}.properties"
        self.log_path = folder / f"{name}.log"
        self.text = "".join(f"{key} = {value}\n" for key, value in properties.items())
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was not started"
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def start(self) -> Self:
        """Start it, and do not wait: what it copies shows that it runs."""
        self.file.write_text(self.text, encoding="utf-8")
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        jars = f"{maven_jars('mirror-4.1')}/*"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                ["java", *HEAP, quiet, "-cp", jars, CLASS, str(self.file)], stdout=log, stderr=log
            )
        return self

    def stop(self) -> None:
        """A clean stop: it writes how far it is."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(SHUTDOWN_SECONDS)
            finally:
                self.process.kill()
            self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
