"""`ottla broker`: start a broker and serve until SIGTERM or SIGINT."""

from __future__ import annotations

import errno
import logging
import os
import resource
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.console_process import ConsoleProcess, add_console
from ottla.cli.host_checks import warn_at_start
from ottla.cli.json_log import log_as_json
from ottla.cli.property_files import add_overrides, add_property_file, server_settings
from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import shown
from ottla.runtime.disk import claim_shared_folder
from ottla.server.broker_process import run_broker

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal

OF_A_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)
"""Errors whose place must be said: the files that are open at the start are those of its logs."""

logger = logging.getLogger(__name__)


class BrokerCommand(Command):
    """Runs a broker with the settings of a property file and of --override.

    Without log.dirs its data are in /tmp/ottla-logs.
    """

    name = "broker"
    examples = (
        "ottla broker config/server.properties",
        "ottla broker --override listeners=PLAINTEXT://:9093 --override log.dirs=/tmp/ottla-1",
    )
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_property_file(
            parser, "SERVER.PROPERTIES", "The property file, as Kafka's start script takes it."
        )
        add_overrides(parser, "A setting that wins over the property file; may be repeated.")
        parser.add_argument(
            "--adopt-log-dirs",
            action="store_true",
            help="Take over partitions that Apache Kafka, or a lost registry, left in log.dirs. "
            "This cannot be undone: Kafka does not start on the directory afterwards.",
        )
        add_console(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        settings = server_settings(arguments)
        if asks_for_jmx():
            from ottla.cli.jmx_options import metrics_listener  # most starts do without

            settings |= metrics_listener(settings)
        adoption = {"ottla.adopt.log.dirs": "true"} if arguments.adopt_log_dirs else {}
        config = BrokerConfig.parse({**settings, **adoption})
        if config.ottla_log_format == "json":
            log_as_json()
        for key, value in settings.items():
            logger.info("Property %s is overridden to %s", key, shown(key, value))

        for log_dir in config.log_dirs:
            claim_shared_folder(log_dir, "log.dirs")
        warn_at_start(config)

        raise_open_files_limit()
        console = ConsoleProcess(terminal)
        try:
            return run_broker(config, console.start_at if arguments.console else None)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                if error.filename is None and error.errno in OF_A_DISK:  # of an open file
                    error.filename = f"log.dirs={config.text_of('log.dirs')}"
                raise
            from ottla.cli.local_ports import in_use  # a start does without

            raise in_use(error) from error
        finally:
            console.stop()


def asks_for_jmx() -> bool:
    """Whether a variable of Kafka's start scripts is about JMX."""
    return bool(os.environ.get("JMX_PORT") or os.environ.get("KAFKA_JMX_OPTS"))


def raise_open_files_limit() -> None:
    """Take as many file descriptors as the system allows: a segment and a connection hold one.

    The soft limit is usually 1,024, for programs that use select; the JVM raises it likewise.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS allows less than its hard limit says
        logger.warning("at most %d open files: the limit cannot be raised: %s", soft, error)
