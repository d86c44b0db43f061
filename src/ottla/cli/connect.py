"""`ottla connect`: try a connector, run it, hand it to a worker, and look after it there.

`ottla connect-standalone`, `ottla connect-distributed`: workers that serve until Ctrl-C.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.connect_redrive import add_redrive_options, redrive
from ottla.cli.exact_json import json_line
from ottla.cli.jmx_options import note_metrics_at
from ottla.cli.options import (
    add_bootstrap_server,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    key_values,
    single_word,
)
from ottla.cli.output import one_line
from ottla.cli.property_files import load_properties, settings_in
from ottla.cli.terminal import Terminal, check_reachable, interruptible
from ottla.cli.text_files import read_text
from ottla.clients.connect_rest import ConnectRefusedError, ConnectRest, offsets_of, status_of
from ottla.clients.json_answers import OddAnswerError, part, text_of, texts_of
from ottla.connect.connect_worker import ConnectWorker
from ottla.connect.plugin_thread import INITIAL_STATES
from ottla.connect.preview import Preview
from ottla.errors import KafkaError
from ottla.runtime.http_calls import shown_url

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping

NO_CONNECTOR: Final = 3
"""The exit status when a connector could not be created, as Kafka has it."""


class ConnectStandaloneCommand(Command):
    """Runs connectors in one process; it reads their property files at its start."""

    name = "connect-standalone"
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
        properties = settings_in(arguments.worker)
        connectors = [read_connector(file) for file in arguments.connectors]
        if "bootstrap.servers" in properties:
            check_reachable(properties["bootstrap.servers"], properties)
        is_over = threading.Event()
        with ConnectWorker.standalone(properties) as worker, interruptible(is_over):
            for file, (config, state) in zip(arguments.connectors, connectors, strict=True):
                try:
                    _create_here(worker, config, state)
                except KafkaError as error:
                    terminal.note(f"error: {file}: {error.message}")
                    return NO_CONNECTOR
            terminal.note(f"connect: {len(connectors)} connectors run; REST API at {worker.url}")
            note_metrics_at(worker.url)
            is_over.wait()
        return 0


class ConnectDistributedCommand(Command):
    """Runs a worker of a group; connectors are given to it by REST."""

    name = "connect-distributed"
    examples = ("ottla connect-distributed config/connect-distributed.properties",)
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "worker", metavar="WORKER.PROPERTIES", help="The property file of the worker."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        properties = load_properties(arguments.worker)
        if "bootstrap.servers" in properties:
            check_reachable(properties["bootstrap.servers"], properties)
        is_over = threading.Event()
        with ConnectWorker.distributed(properties) as worker, interruptible(is_over):
            terminal.note(f"connect: a worker of {properties['group.id']} at {worker.url}")
            note_metrics_at(worker.url)
            is_over.wait()
        return 0


def _create_here(worker: ConnectWorker, config: Mapping[str, str], state: str | None) -> None:
    worker.create(config, None if state is None else INITIAL_STATES[state])


def read_connector(file: str) -> tuple[dict[str, str], str | None]:
    """The properties of a connector, and its initial state where the file has one.

    A file ending in .json has the properties as an object, or the body of POST /connectors.
    """
    if not file.endswith(".json"):
        return load_properties(file), None
    try:
        body: Any = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{file} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise CommandError(f"{file} must hold a JSON object")
    state = None
    if isinstance(body.get("config"), dict):
        state = body.get("initial_state")
        body = {"name": body.get("name"), **body["config"]}
    if state not in (None, "RUNNING", "PAUSED", "STOPPED"):
        raise CommandError(f"{file}: initial_state={state} must be RUNNING, PAUSED or STOPPED")
    return {key: str(value) for key, value in body.items() if value is not None}, state


DEFAULT_URL: Final = "http://127.0.0.1:8083"
URL_VARIABLE: Final = "OTTLA_CONNECT_URL"
PREVIEWED: Final = 20
LIMIT_S: Final = 95
"""A little longer than a worker takes at most."""

ACTIONS: Final = {
    "run": "CONNECTOR: run it here until Ctrl-C",
    "preview": "CONNECTOR: print what it would bring, and write nothing",
    "create": "CONNECTOR: hand it to a worker, or change it there",
    "list": "the connectors of a worker, with their states",
    "status": "NAME",
    "pause": "NAME",
    "resume": "NAME",
    "stop": "NAME: end its tasks, so that its offsets can be set",
    "restart": "NAME: it and its failed tasks",
    "delete": "NAME",
    "offsets": "show|rewind|reset NAME: where it is; rewind sets it to --to",
    "redrive": "QUEUE: send dead letters back to the topics that they are from",
}
OFFSETS: Final = ("show", "rewind", "reset")


class ConnectCommand(Command):
    """Runs, tries, lists and controls connectors; CONNECTOR is a property file or a Python file."""

    name = "connect"
    examples = (
        "ottla connect preview mine.py --set topic=ticks -n 5",
        "ottla connect run mine.py --set topic=ticks",
        "ottla connect create connector.properties --dry-run",
        "ottla connect offsets show local-file-source",
        "ottla connect redrive dead-letters --error Timeout --since 2d --dry-run",
        "ottla connect redrive dead-letters --at 0:17",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=tuple(ACTIONS),
            help="; ".join(f"{name} ({text})" for name, text in ACTIONS.items()) + ".",
        )
        parser.add_argument("words", metavar="WORD", nargs="*", help="What the action is about.")
        add_bootstrap_server(parser)
        add_repeated(parser, "--set", "KEY=VALUE", "A setting of the connector; may be repeated.")
        parser.add_argument(
            "--worker-config",
            metavar="FILE",
            help="Property file of a worker, for run and preview: its converters count. Without it "
            "values are JSON without schemas.",
        )
        parser.add_argument(
            "--url",
            metavar="URL",
            default=os.environ.get(URL_VARIABLE, DEFAULT_URL),
            help=f"The worker's REST API. Default: ${URL_VARIABLE}, else {DEFAULT_URL}.",
        )
        add_integer(
            parser,
            "-n",
            "N",
            f"How many records preview prints (default: {PREVIEWED}), or redrive sends (all).",
            least=1,
        )
        add_flag(
            parser,
            "--dry-run",
            "Check what create would do, and say what is wrong; or show what redrive would send.",
        )
        parser.add_argument(
            "--to",
            metavar="JSON|TOPIC",
            help="For rewind: a list of partitions and offsets, as `show` prints them. For "
            "redrive: a topic for all records, in the place of those that they are from.",
        )
        add_redrive_options(parser.add_argument_group("redrive"))

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        actions: dict[str, Callable[[Namespace, Terminal], int]] = {
            "run": _run,
            "preview": _preview,
            "create": _create,
            "list": _list,
            "offsets": _offsets,
            "redrive": redrive,
        }
        try:
            return actions.get(arguments.action, _manage)(arguments, terminal)
        except KafkaError as error:
            raise CommandError(error.message) from error
        except OddAnswerError as error:
            raise CommandError(odd_answer(arguments, error)) from None


def _properties(arguments: Namespace) -> dict[str, str]:
    """The properties of the connector that the command line names."""
    file = single_word(arguments, "one CONNECTOR: a property file, one with JSON, or a Python file")
    if file.partition(":")[0].endswith(".py"):
        found = {"name": Path(file.partition(":")[0]).stem, "connector.class": file}
    else:
        found, _ = read_connector(file)
    return found | key_values(arguments.set)


def _worker_properties(arguments: Namespace, name: str) -> dict[str, str]:
    given = settings_in(arguments.worker_config)
    return {
        "bootstrap.servers": bootstrap_server(arguments),
        "key.converter": "JsonConverter",
        "value.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": f"{name}.offsets",
        "offset.flush.interval.ms": "10000",
        "listeners": "http://127.0.0.1:0",
    } | given


def _run(arguments: Namespace, terminal: Terminal) -> int:
    properties = _properties(arguments)
    worker_properties = _worker_properties(arguments, properties["name"])
    check_reachable(worker_properties["bootstrap.servers"], worker_properties)
    is_over = threading.Event()
    with ConnectWorker.standalone(worker_properties) as worker, interruptible(is_over):
        worker.create(properties)
        terminal.note(f"connect: {properties['name']} runs; REST API at {worker.url}")
        is_over.wait()
    return 0


def _preview(arguments: Namespace, terminal: Terminal) -> int:
    properties = _properties(arguments)
    preview = Preview(_worker_properties(arguments, properties["name"]), properties)
    most = PREVIEWED if arguments.n is None else arguments.n
    count = 0
    for record in preview.records(most, LIMIT_S * 1000):
        count += 1
        key = "" if record.key is None else f"{record.key} "
        terminal.print(f"{record.topic}: {key}{record.value}")
    terminal.note(f"preview: {count} records, nothing was written")
    return 0


def _create(arguments: Namespace, terminal: Terminal) -> int:
    properties = _properties(arguments)
    name = properties.get("name", "")
    if arguments.dry_run:
        plugin = quote(properties.get("connector.class", "").rpartition(".")[2] or "-", safe="")
        if properties.get("connector.class", "").partition(":")[0].endswith(".py"):
            plugin = quote(properties["connector.class"], safe="")
        found = ask(arguments, "PUT", f"/connector-plugins/{plugin}/config/validate", properties)
        values = [part({"config": each}, "config", dict) for each in part(found, "configs", list)]
        errors = [text for each in values for text in texts_of(part(each, "value", dict), "errors")]
        for text in errors:
            terminal.print(text)
        terminal.note(f"{name}: {len(errors)} errors; nothing was created")
        return int(bool(errors))
    ask(arguments, "PUT", f"/connectors/{quote(name, safe='')}/config", properties)
    terminal.print(f"created {name}")
    return 0


def _list(arguments: Namespace, terminal: Terminal) -> int:
    found = ask(arguments, "GET", "/connectors?expand=status")
    status = 0
    for name in sorted(found):
        try:
            _print_status(name, part(part(found, name, dict), "status", dict), terminal)
        except OddAnswerError as error:
            terminal.note(f"error: {name}: {odd_answer(arguments, error)}")
            status = 1
    if not found:
        terminal.print("there are no connectors")
    return status


def _print_status(name: str, found: Mapping[str, Any], terminal: Terminal) -> None:
    status = status_of(found)
    states = " ".join(f"{task.id}:{one_line(task.state)}" for task in status.tasks)
    own = " ".join(one_line(each) for each in (name, status.type, status.state))
    terminal.print(f"{own} {states}".rstrip())
    for trace in (status.trace, *(task.trace for task in status.tasks)):
        if trace:
            terminal.print(trace.rstrip())


def _manage(arguments: Namespace, terminal: Terminal) -> int:
    name = single_word(arguments, "one NAME")
    path = f"/connectors/{quote(name, safe='')}"
    if arguments.action == "status":
        _print_status(name, ask(arguments, "GET", f"{path}/status"), terminal)
    elif arguments.action == "delete":
        ask(arguments, "DELETE", path)
        terminal.print(f"deleted {name}")
    elif arguments.action == "restart":
        ask(arguments, "POST", f"{path}/restart?includeTasks=true&onlyFailed=true")
        terminal.print(f"restarted {name}")
    else:
        ask(arguments, "PUT", f"{path}/{arguments.action}")
        terminal.print(f"{arguments.action}: {name}")
    return 0


def _offsets(arguments: Namespace, terminal: Terminal) -> int:
    if not arguments.words or arguments.words[0] not in OFFSETS:
        raise UsageError(f"offsets takes {'|'.join(OFFSETS)} and one NAME")
    what, name = arguments.words[0], single_word(arguments, f"{arguments.words[0]} and one NAME", 1)
    path = f"/connectors/{quote(name, safe='')}/offsets"
    if what == "show":
        found = offsets_of(ask(arguments, "GET", path))
        terminal.print(json_line(found))
    elif what == "reset":
        terminal.print(text_of(ask(arguments, "DELETE", path), "message"))
    else:
        try:
            wanted = json.loads(arguments.to or "")
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--to must be a list as `offsets show` prints it: {error}") from None
        terminal.print(text_of(ask(arguments, "PATCH", path, {"offsets": wanted}), "message"))
    return 0


def odd_answer(arguments: Namespace, error: OddAnswerError) -> str:
    """The sentence for an answer whose parts are not Connect's."""
    return f"the worker at {shown_url(arguments.url)} does not answer as Connect does: {error}"


def ask(arguments: Namespace, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """The response of a worker; CommandError with its message if the worker refuses."""
    try:
        return ConnectRest(arguments.url, LIMIT_S).ask(method, path, body)
    except ConnectRefusedError as error:
        raise CommandError(error.message) from None
    except OSError as error:
        raise CommandError(f"no worker answers at {shown_url(arguments.url)}: {error}") from error
