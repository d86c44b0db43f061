"""`ottla broker`: start a broker and serve until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

from ottla.cli.command import Command, UsageError
from ottla.cli.options import key_values
from ottla.cli.properties import load_properties
from ottla.cli.terminal import Terminal

logger = logging.getLogger(__name__)

SECRET_WORDS = ("password", "secret", "jaas")


class BrokerCommand(Command):
    """Runs a broker with the settings of a property file and of --override."""

    name = "broker"
    help = "Start a broker and serve until SIGTERM or Ctrl-C."
    examples = (
        "ottla broker config/server.properties",
        "ottla broker --override listeners=PLAINTEXT://:9093 --override log.dirs=/tmp/ottla-1",
    )
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file",
            metavar="SERVER.PROPERTIES",
            nargs="?",
            help="The property file, as Kafka's start script takes it.",
        )
        parser.add_argument("--config", metavar="FILE", help="The same property file by name.")
        parser.add_argument(
            "--override",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="A setting that wins over the property file; may be repeated.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.config.broker_config import BrokerConfig

        settings = broker_settings(arguments)
        config = BrokerConfig.parse(settings)
        for key, value in settings.items():
            logger.info("Property %s is overridden to %s", key, _shown(key, value))

        from ottla.server.broker import run_broker

        return run_broker(config)


def broker_settings(arguments: Namespace) -> Mapping[str, str]:
    """The property file's settings with the overrides on top."""
    if arguments.file and arguments.config:
        raise UsageError("the property file is given twice, by place and with --config")
    path = arguments.config or arguments.file
    settings = load_properties(path) if path else {}
    for pair in arguments.override:
        if "=" not in pair:
            raise UsageError(f"--override takes key=value, not '{pair}'")
    return settings | key_values(arguments.override)


def _shown(key: str, value: str) -> str:
    """The value, unless the key says that it is a secret."""
    return "[hidden]" if any(word in key for word in SECRET_WORDS) else value
