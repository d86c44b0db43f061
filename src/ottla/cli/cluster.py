"""`ottla cluster`: ZooKeeper and brokers as child processes until Ctrl-C."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import jmx_options
from ottla.cli.cluster_servers import MAX_BROKERS, MAX_PORT, ClusterLayout, lock
from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.console_process import ConsoleProcess, add_console
from ottla.cli.options import add_integer
from ottla.cli.property_files import add_overrides, overrides
from ottla.cli.server_process import Child
from ottla.cli.terminal import DEFAULT_PORT, Terminal
from ottla.cli.zookeeper_server import java, zookeeper_jars

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.cluster_servers import Server


DEFAULT_DATA_DIR: Final = Path(tempfile.gettempdir()) / "ottla-cluster"
DEFAULT_BROKERS: Final = 3
DEFAULT_ZOOKEEPER_PORT: Final = 2181
POLL_S: Final = 0.2


class ClusterCommand(Command):
    """Starts the servers, says how they do, and stops them all in order."""

    name = "cluster"
    examples = (
        "ottla cluster --brokers 3",
        "ottla cluster --data-dir /tmp/mine --base-port 19092 --zookeeper-port 12181 "
        "--override min.insync.replicas=2",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_integer(
            parser,
            "--brokers",
            "N",
            f"How many brokers; their ids are 0, 1, ... Default: {DEFAULT_BROKERS}.",
            least=1,
            most=MAX_BROKERS,
            default=DEFAULT_BROKERS,
        )
        parser.add_argument(
            "--data-dir",
            metavar="DIR",
            type=Path,
            default=DEFAULT_DATA_DIR,
            help="Folder for the data, logs and property files of all servers; a cluster that is "
            f"started on it again goes on. Default: {DEFAULT_DATA_DIR}.",
        )
        add_integer(
            parser,
            "--base-port",
            "P",
            "Broker 0 listens here, broker 1 at the next port, ...; 0 takes free ports. "
            f"Default: {DEFAULT_PORT}.",
            least=0,
            most=MAX_PORT,
            default=DEFAULT_PORT,
        )
        add_integer(
            parser,
            "--zookeeper-port",
            "P",
            f"Where ZooKeeper listens; 0 takes a free port. Default: {DEFAULT_ZOOKEEPER_PORT}.",
            least=0,
            most=MAX_PORT,
            default=DEFAULT_ZOOKEEPER_PORT,
        )
        add_overrides(parser, "A setting of every broker; may be repeated.")
        add_console(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        layout = ClusterLayout(
            arguments.data_dir.absolute(),
            arguments.brokers,
            arguments.base_port,
            arguments.zookeeper_port,
            overrides(arguments),
        )
        java()
        zookeeper_jars()
        with lock(layout.data_dir):
            layout.write()
            return ClusterRun(layout, terminal, with_console=arguments.console).run()


class ClusterRun:
    """The child processes of one run; none of them outlives it."""

    def __init__(
        self, layout: ClusterLayout, terminal: Terminal, *, with_console: bool = False
    ) -> None:
        self._console = ConsoleProcess(terminal) if with_console else None
        self.layout = layout
        self.terminal = terminal
        self.children: list[Child] = []

    def run(self) -> int:
        """Start all servers, and stop them on request; 1 when all have ended by themselves."""
        try:
            self._start()
            self._watch()
            raise CommandError("all servers have ended")
        except (KeyboardInterrupt, SystemExit):
            return 0  # the user has stopped the cluster, which is its usual end
        finally:
            self._stop()

    def _start(self) -> None:
        if variables := jmx_options.given():
            self._say(f"{' and '.join(variables)}: passed over, as servers cannot share a port")
        self.children.append(Child(self.layout.zookeeper))
        self._welcome(self.children[0])
        self.children += [Child(broker) for broker in self.layout.brokers]
        for child in self.children[1:]:
            self._welcome(child)
        self._say(f"The cluster is ready: --bootstrap-server {self.layout.bootstrap_servers}")
        if self._console is not None:
            self._console.start(self.layout.bootstrap_servers)

    def _welcome(self, child: Child) -> None:
        child.wait_until_ready()
        self._say(f"{self._status(child.server)} (process {child.process.pid})")

    def _status(self, server: Server) -> str:
        return f"{server.name} is ready at 127.0.0.1:{server.port}, log {server.log}"

    def _watch(self) -> None:
        """Report servers that end, as long as any runs."""
        running = list(self.children)
        while running:
            time.sleep(POLL_S)
            for child in [child for child in running if not child.is_running]:
                running.remove(child)
                self._say(
                    f"{child.server.name} has ended: {child.last_words()}; "
                    f"start it again with: {child.start_command}"
                )

    def _stop(self) -> None:
        """Brokers first, ZooKeeper last; an interrupt meanwhile kills all at once."""
        try:
            if self._console is not None:
                self._console.stop()
            for child in reversed(self.children):
                if child.is_running:
                    self._stop_child(child)
        finally:
            for child in reversed(self.children):
                child.kill()

    def _stop_child(self, child: Child) -> None:
        name = child.server.name
        wait = f"{name} is not done yet; Ctrl-C once more ends all servers at once"
        if child.stop(lambda: self._say(wait)):
            self._say(f"{name} is stopped")
        else:
            self._say(f"{name} was killed: it took too long (see {child.server.log})")

    def _say(self, line: str) -> None:
        self.terminal.print(line)
        self.terminal.out.flush()
