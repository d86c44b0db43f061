"""`ottla zookeeper`: the real ZooKeeper server, from the jars of PySpark, in a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.property_files import add_overrides, add_property_file, server_settings
from ottla.cli.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


class ZooKeeperCommand(Command):
    """Runs the server with the settings of a property file and of --override."""

    name = "zookeeper"
    examples = (
        "ottla zookeeper config/zookeeper.properties",
        "ottla zookeeper --override clientPort=2182 --override dataDir=/tmp/zookeeper-2",
    )
    default_log_level = "WARN"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_property_file(
            parser, "ZOOKEEPER.PROPERTIES", "The property file, with ZooKeeper's own settings."
        )
        add_overrides(
            parser,
            "A setting that wins over the property file; may be repeated. clientPort=0 takes a "
            "free port.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        server = ZooKeeperServer(server_settings(arguments), arguments.log_level)
        try:
            server.start()
            server.wait_until_ready()
            assert server.process is not None, "the server was started"
            terminal.print(
                f"ZooKeeper is ready at {server.host}:{server.port} (process {server.process.pid})"
            )
            terminal.out.flush()
            raise CommandError(f"ZooKeeper ended with status {server.wait()}")
        except (KeyboardInterrupt, SystemExit):
            return 0  # the user has stopped it
        finally:
            server.stop()
