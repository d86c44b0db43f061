"""`ottla connect-standalone`, `ottla connect-distributed`: workers that serve until Ctrl-C."""

from __future__ import annotations

import json
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.options import load_properties
from ottla.cli.terminal import Terminal, check_reachable, interruptible

if TYPE_CHECKING:
    from ottla.connect.connect_worker import ConnectWorker

NO_CONNECTOR: Final = 3
"""The exit status when a connector could not be created, as Kafka has it."""


class ConnectStandaloneCommand(Command):
    """Runs connectors in one process; it reads their property files at its start."""

    name = "connect-standalone"
    help = "Run connectors in one process: files into topics, topics into files, and others."
    examples = (
        "ottla connect-standalone config/connect-standalone.properties "
        "config/connect-file-source.properties config/connect-file-sink.properties",
    )
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "worker", metavar="WORKER.PROPERTIES", help="The property file of the worker."
        )
        parser.add_argument(
            "connectors",
            metavar="CONNECTOR.PROPERTIES",
            nargs="*",
            help="A property file, or one with JSON, for each connector.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.connect.connect_worker import ConnectWorker
        from ottla.errors import KafkaError

        properties = load_properties(arguments.worker) if arguments.worker else {}
        connectors = [read_connector(file) for file in arguments.connectors]
        if "bootstrap.servers" in properties:
            check_reachable(properties["bootstrap.servers"])
        is_over = threading.Event()
        with interruptible(is_over), ConnectWorker.standalone(properties) as worker:
            for file, (config, state) in zip(arguments.connectors, connectors, strict=True):
                try:
                    _create(worker, config, state)
                except KafkaError as error:
                    terminal.note(f"error: {file}: {error.message}")
                    return NO_CONNECTOR
            terminal.note(f"connect: {len(connectors)} connectors run; REST API at {worker.url}")
            is_over.wait()
        return 0


class ConnectDistributedCommand(Command):
    """Runs a worker of a group; connectors are given to it by REST."""

    name = "connect-distributed"
    help = "Run a worker of a group that shares connectors, and takes over when one dies."
    examples = ("ottla connect-distributed config/connect-distributed.properties",)
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "worker", metavar="WORKER.PROPERTIES", help="The property file of the worker."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.connect.connect_worker import ConnectWorker

        properties = load_properties(arguments.worker)
        if "bootstrap.servers" in properties:
            check_reachable(properties["bootstrap.servers"])
        is_over = threading.Event()
        with interruptible(is_over), ConnectWorker.distributed(properties) as worker:
            terminal.note(f"connect: a worker of {properties['group.id']} at {worker.url}")
            is_over.wait()
        return 0


def _create(worker: ConnectWorker, config: Mapping[str, str], state: str | None) -> None:
    from ottla.connect.worker_task import INITIAL_STATES

    worker.create(config, None if state is None else INITIAL_STATES[state])


def read_connector(file: str) -> tuple[dict[str, str], str | None]:
    """The properties of a connector, and its initial state where the file has one.

    A file ending in .json has the properties as an object, or what POST /connectors takes.
    """
    if not file.endswith(".json"):
        return load_properties(file), None
    try:
        body: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{file} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise CommandError(f"{file} must hold a JSON object")
    state = None
    if isinstance(body.get("config"), dict):
        state = body.get("initial_state")
        body = {"name": body.get("name"), **body["config"]}
    if state not in (None, "RUNNING", "PAUSED", "STOPPED"):
        raise CommandError(f"{file}: initial_state={state} must be RUNNING, PAUSED or STOPPED")
    return {key: str(value) for key, value in body.items() if value is not None}, state
