"""A ZooKeeper server on this machine: its jars, its settings and its process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.four_letter_words import ask
from ottla.cli.jmx_options import java_options
from ottla.cli.local_ports import require_free
from ottla.config.whole_number import number_of
from ottla.runtime.child_process import ending_with_parent
from ottla.runtime.disk import claim_shared_folder
from ottla.runtime.free_port import free_port
from ottla.runtime.java import JavaMissingError, require_java
from ottla.runtime.own_folder import OwnFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


JARS_VARIABLE: Final = "OTTLA_ZOOKEEPER_JARS"
"""A folder with ZooKeeper's jars in the place of PySpark's, as the release archive has one."""
JARS: Final = (
    *("log4j-api-[0-9]*", "log4j-core-[0-9]*", "log4j-slf4j2-impl-[0-9]*", "metrics-core-[0-9]*"),
    *("slf4j-api-[0-9]*", "snappy-java-[0-9]*", "zookeeper-[0-9]*", "zookeeper-jute-[0-9]*"),
)
"""The jars of PySpark that a server without TLS loads; 6 MB."""
NEEDS_MORE: Final = re.compile(r"ssl|secure|netty|provider|admin\.enableserver=true", re.IGNORECASE)
"""Settings with which a server loads classes of other jars as well."""
STANDALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
ENSEMBLE: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
DEFAULTS: Final = {
    "dataDir": "/tmp/zookeeper",
    "clientPort": "2181",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "ruok,stat,srvr,mntr,conf,cons,envi,isro,dirs,wchs",
}
"""The defaults of settings that are not given."""
LOG4J: Final = """\
status = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
logger.beans.name = root
logger.beans.level = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
"""
HEAP: Final = "-Xmx512M"
POLL_S: Final = 0.02
PROBE_TIMEOUT_S: Final = 0.5
"""A server that is not ready yet may accept a connection and forget it."""
STOP_TIMEOUT_S: Final = 10.0


class ZooKeeperServer:
    """One server: its settings, its process, and whether it serves."""

    def __init__(self, settings: Mapping[str, str], log_level: str = "WARN") -> None:
        self.settings = DEFAULTS | dict(settings)
        self.log_level = log_level
        if self.settings["clientPort"] == "0":
            self.settings["clientPort"] = str(free_port(self.host))
        self.process: subprocess.Popen[bytes] | None = None
        self._folder: OwnFolder | None = None

    @property
    def host(self) -> str:
        """Where the server listens, as far as its own machine is concerned."""
        address = self.settings.get("clientPortAddress", "")
        return "127.0.0.1" if address in ("", "0.0.0.0", "::") else address

    @property
    def port(self) -> int:
        text = self.settings["clientPort"]
        if number_of(text, 1, 65535) is None:
            raise CommandError(f"clientPort={text}: must be a port")
        return int(text)

    def start(self) -> None:
        """Start the process; `wait_until_ready` says when it serves."""
        claim_shared_folder(self.settings["dataDir"], "dataDir")
        command = self._command(java(), zookeeper_jars())
        require_free(self.host, self.port)
        # Its output goes to stderr; stdout only has the line that says that it is ready.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            preexec_fn=ending_with_parent(),  # noqa: PLW1509 - it takes no lock
            # Ctrl-C reaches the whole process group; only this process may stop the server.
            process_group=0,
        )

    def _command(self, program: Path, jars: Path) -> list[str]:
        self._folder = OwnFolder("ottla-zookeeper-")
        path = self._folder.path / "zoo.cfg"
        lines = [f"{key}={value}\n" for key, value in self.settings.items()]
        path.write_text("".join(lines).replace("\\", "\\\\"), encoding="utf-8")
        is_ensemble = any(key.startswith("server.") for key in self.settings)
        log4j = self._folder.path / "log4j2.properties"
        log4j.write_text(LOG4J.format(level=self.log_level), encoding="utf-8")
        options = os.environ.get("KAFKA_HEAP_OPTS", HEAP).split()
        options.append(f"-Dlog4j2.configurationFile={log4j}")
        main_class = ENSEMBLE if is_ensemble else STANDALONE
        classes = class_path(jars, [*lines, *options])
        options += java_options()
        return [str(program), *options, "-cp", classes, main_class, str(path)]

    def wait_until_ready(self) -> None:
        """Return when the server answers; raises CommandError if it has ended instead."""
        assert self.process is not None, "the server was started"
        while not self.is_serving():
            status = self.process.poll()
            if status is not None:
                raise CommandError(f"ZooKeeper did not start (status {status}): see what it logged")
            time.sleep(POLL_S)

    def is_serving(self) -> bool:
        try:
            return ask(self.host, self.port, "srvr", PROBE_TIMEOUT_S).startswith(
                "Zookeeper version"
            )
        except OSError:
            return False

    def wait(self) -> int:
        """Return when the process has ended, with its status."""
        assert self.process is not None, "the server was started"
        return self.process.wait()

    def stop(self) -> None:
        """Stop the process by SIGTERM, and by SIGKILL if that takes too long."""
        if self.process is not None and self.process.poll() is None:
            # A process that SIGSTOP has stopped would not act on SIGTERM.
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._folder is not None:
            self._folder.close()


def zookeeper_jars() -> Path:
    """The folder that the environment names, or that of PySpark; CommandError without ZooKeeper."""
    named = os.environ.get(JARS_VARIABLE)
    folders = [Path(named)] if named else []
    spec = find_spec("pyspark")
    folders += [
        Path(place) / "jars"
        for place in (spec.submodule_search_locations or [] if spec is not None else [])
    ]
    for folder in folders:
        if any(folder.glob("zookeeper-[0-9]*.jar")):
            return folder
    raise CommandError(
        "ZooKeeper's own jars are missing; they come with PySpark: pip install 'ottla[spark]'"
    )


def java() -> Path:
    """The `java` program; CommandError with a hint where to get it if it is missing."""
    try:
        return require_java()
    except JavaMissingError as error:
        raise CommandError(str(error)) from error


def class_path(jars: Path, lines: Iterable[str]) -> str:
    """All jars of a folder that is there for ZooKeeper; of PySpark's 280, those that are needed.

    The rest would take a third of the time until the server is ready. The lines are the settings
    and the options of Java.
    """
    if os.environ.get(JARS_VARIABLE) or any(map(NEEDS_MORE.search, lines)):
        return f"{jars}/*"
    return os.pathsep.join(str(path) for each in JARS for path in jars.glob(f"{each}.jar"))
