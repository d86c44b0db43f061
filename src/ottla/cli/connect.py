"""`ottla connect`: try a connector, run it, hand it to a worker, and look after it there.

`ottla connect-standalone`, `ottla connect-distributed`: workers that serve until Ctrl-C.
"""

from __future__ import annotations

import json
import math
import os
import threading
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    Options,
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    command_settings,
    key_values,
    load_properties,
    moment_ms,
)
from ottla.cli.output import TABLE, Row, one_line, show_rows
from ottla.cli.terminal import Terminal, check_reachable, interruptible, without_servers

if TYPE_CHECKING:
    from ottla.connect.connect_worker import ConnectWorker
    from ottla.connect.tolerance import Choice, DeadLetter, Left

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
                    _create_here(worker, config, state)
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


def _create_here(worker: ConnectWorker, config: Mapping[str, str], state: str | None) -> None:
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
    """What a person does with connectors; CONNECTOR is a property file, or a Python file."""

    name = "connect"
    help = "Try, run and look after connectors."
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
        _add_redrive_options(parser.add_argument_group("redrive"))

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.errors import KafkaError

        actions: dict[str, Callable[[Namespace, Terminal], int]] = {
            "run": _run,
            "preview": _preview,
            "create": _create,
            "list": _list,
            "offsets": _offsets,
            "redrive": _redrive,
        }
        try:
            return actions.get(arguments.action, _manage)(arguments, terminal)
        except KafkaError as error:
            raise CommandError(error.message) from error


def _word(arguments: Namespace, what: str, position: int = 0) -> str:
    words: list[str] = arguments.words
    if len(words) != position + 1:
        raise UsageError(f"{arguments.action} takes {what}")
    return words[position]


def _properties(arguments: Namespace) -> dict[str, str]:
    """The properties of the connector that the command line names."""
    file = _word(arguments, "one CONNECTOR: a property file, one with JSON, or a Python file")
    if file.partition(":")[0].endswith(".py"):
        found = {"name": Path(file.partition(":")[0]).stem, "connector.class": file}
    else:
        found, _ = read_connector(file)
    return found | key_values(arguments.set)


def _worker_properties(arguments: Namespace, name: str) -> dict[str, str]:
    given = load_properties(arguments.worker_config) if arguments.worker_config else {}
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


# Here


def _run(arguments: Namespace, terminal: Terminal) -> int:
    from ottla.connect.connect_worker import ConnectWorker

    properties = _properties(arguments)
    worker_properties = _worker_properties(arguments, properties["name"])
    check_reachable(worker_properties["bootstrap.servers"])
    is_over = threading.Event()
    with interruptible(is_over), ConnectWorker.standalone(worker_properties) as worker:
        worker.create(properties)
        terminal.note(f"connect: {properties['name']} runs; REST API at {worker.url}")
        is_over.wait()
    return 0


def _preview(arguments: Namespace, terminal: Terminal) -> int:
    from ottla.connect.preview import Preview

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


# At a worker


def _create(arguments: Namespace, terminal: Terminal) -> int:
    properties = _properties(arguments)
    name = properties.get("name", "")
    if arguments.dry_run:
        plugin = quote(properties.get("connector.class", "").rpartition(".")[2] or "-", safe="")
        if properties.get("connector.class", "").partition(":")[0].endswith(".py"):
            plugin = quote(properties["connector.class"], safe="")
        found = ask(arguments, "PUT", f"/connector-plugins/{plugin}/config/validate", properties)
        errors = [text for each in found["configs"] for text in each["value"]["errors"]]
        for text in errors:
            terminal.print(text)
        terminal.note(f"{name}: {len(errors)} errors; nothing was created")
        return int(bool(errors))
    ask(arguments, "PUT", f"/connectors/{quote(name, safe='')}/config", properties)
    terminal.print(f"created {name}")
    return 0


def _list(arguments: Namespace, terminal: Terminal) -> int:
    found = ask(arguments, "GET", "/connectors?expand=status")
    for name in sorted(found):
        _print_status(found[name]["status"], terminal)
    if not found:
        terminal.print("there are no connectors")
    return 0


def _print_status(status: Mapping[str, Any], terminal: Terminal) -> None:
    connector = status["connector"]
    states = " ".join(f"{task['id']}:{task['state']}" for task in status["tasks"])
    terminal.print(f"{status['name']} {status['type']} {connector['state']} {states}".rstrip())
    for each in (connector, *status["tasks"]):
        if each.get("trace"):
            terminal.print(each["trace"].rstrip())


def _manage(arguments: Namespace, terminal: Terminal) -> int:
    name = _word(arguments, "one NAME")
    path = f"/connectors/{quote(name, safe='')}"
    if arguments.action == "status":
        _print_status(ask(arguments, "GET", f"{path}/status"), terminal)
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
    what, name = arguments.words[0], _word(arguments, f"{arguments.words[0]} and one NAME", 1)
    path = f"/connectors/{quote(name, safe='')}/offsets"
    if what == "show":
        terminal.print(json.dumps(ask(arguments, "GET", path)["offsets"], ensure_ascii=False))
    elif what == "reset":
        terminal.print(ask(arguments, "DELETE", path)["message"])
    else:
        try:
            wanted = json.loads(arguments.to or "")
        except ValueError as error:
            raise UsageError(f"--to must be a list as `offsets show` prints it: {error}") from None
        terminal.print(ask(arguments, "PATCH", path, {"offsets": wanted})["message"])
    return 0


def ask(arguments: Namespace, method: str, path: str, body: Any = None) -> Any:
    """What a worker answers; CommandError with its message if it refuses."""
    url = arguments.url.rstrip("/") + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            content = error.read()
        raise CommandError(_message(content, error.code)) from None
    except OSError as error:
        raise CommandError(f"no worker answers at {arguments.url}: {error}") from error
    return json.loads(content) if content else {}


def _message(content: bytes, status: int) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the worker answered with status {status}"


# Dead letters


SHOWN: Final = 1000
"""So many letters are in the table of a dry run; all of them are counted."""
MOST_ERRORS: Final = 20
"""So many errors have a line of their own; they may be as many as there are letters."""
MOST_TRIES: Final = 10
Wanted = Callable[["DeadLetter"], bool]
Fits = Callable[["int | None", "int | None"], bool]


def _add_redrive_options(group: Options) -> None:
    """Which dead letters go, and what they keep."""
    add_command_config(group)
    add_repeated(
        group,
        "--from",
        "TOPIC[:PARTITION[:OFFSETS]]",
        "Only records that are from there; offsets as 17, 17-20 or 17-. May be repeated.",
    )
    add_repeated(
        group,
        "--at",
        "PARTITION[:OFFSETS]",
        "Only letters at these places of the queue; may be repeated.",
    )
    group.add_argument(
        "--since",
        metavar="WHEN",
        help="Only letters since then: 1h, 2026-03-02, 2026-03-02T08:00Z.",
    )
    group.add_argument("--until", metavar="WHEN", help="Only letters before then.")
    group.add_argument(
        "--error", metavar="TEXT", help="Only letters with this in the error's class or message."
    )
    group.add_argument("--stage", metavar="STAGE", help="Only letters of this stage of Connect.")
    group.add_argument(
        "--connector", metavar="NAME", help="Only letters of this connector or consumer group."
    )
    group.add_argument("--key", metavar="TEXT", help="Only letters with this key.")
    add_repeated(group, "--header", "NAME=TEXT", "Only letters with this header; may be repeated.")
    add_flag(group, "--again", "Send what was sent before as well.")
    add_integer(
        group,
        "--max-tries",
        "N",
        f"Leave records that were sent back N times and came again. Default: {MOST_TRIES}.",
    )
    group.add_argument(
        "--topic", metavar="TOPIC", help="Where records go that do not say where they are from."
    )
    group.add_argument(
        "--origin",
        metavar="FAMILY|HEADER",
        help="Whose headers count: connect, streams, spring, spring-retry, share-groups, smallrye, "
        "x (x-original-topic), pipelines, or the name of a header of yours that has the topic. "
        "Default: all families.",
    )
    add_flag(group, "--keep-headers", "Keep the headers that say what failed.")
    add_flag(group, "--keep-timestamp", "Keep the time of the record, which else is now.")
    add_flag(group, "--keep-partition", "Send to the partition that the record is from.")


def _redrive(arguments: Namespace, terminal: Terminal) -> int:
    from ottla import Consumer, Producer
    from ottla.connect.tolerance import Redrive, group_of
    from ottla.connect.worker_clients import LARGEST_LETTER

    queue = _word(arguments, "one QUEUE, a topic of dead letters")
    choice = _choice(arguments, terminal)
    servers = bootstrap_server(arguments)
    check_reachable(servers)
    settings = without_servers(command_settings(arguments))
    reading = settings | READING | {"group.id": group_of(queue)}
    result = _RedriveResult(queue)
    with Consumer(servers, reading) as consumer:
        redrive = Redrive(consumer, queue, choice, result.note)
        try:
            if arguments.dry_run:
                redrive.preview()
                result.print_table(terminal)
            else:
                room = {"max.request.size": str(LARGEST_LETTER)}
                writing = room | settings | {"transactional.id": group_of(queue), "acks": "all"}
                with Producer(servers, writing) as producer:
                    redrive.send(producer)
        finally:
            result.print_counts(terminal, "would be" if arguments.dry_run else "were")
    problems = result.problems()
    if problems:
        raise CommandError("; ".join(problems))
    return 0


READING: Final = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
    "isolation.level": "read_committed",
}


class _RedriveResult:
    """What became of each letter that was looked at."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._sent: Counter[tuple[str, str]] = Counter()
        self._left: Counter[Left] = Counter()
        self._first: dict[Left, str] = {}
        self._rows: list[Row] = []

    def note(self, letter: DeadLetter, verdict: str, error: str) -> None:
        """A letter that goes to a topic, or is left, for a reason that is a `Left`."""
        from ottla.connect.tolerance import Left

        if isinstance(verdict, Left):
            self._left[verdict] += 1
            place = f"the first is {self._queue}-{letter.record.partition} at offset "
            self._first.setdefault(
                verdict, f"{place}{letter.record.offset}{': ' if error else ''}{error}"
            )
            return
        self._sent[verdict, letter.error or letter.message] += 1
        if len(self._rows) < SHOWN:
            self._rows.append(_row_of(letter, verdict))

    def print_table(self, terminal: Terminal) -> None:
        if self._rows:
            show_rows(self._rows, TABLE, terminal)
        if self._sent.total() > SHOWN:
            terminal.print(f"and {self._sent.total() - SHOWN:,} more")

    def print_counts(self, terminal: Terminal, verb: str) -> None:
        """How many went, by topic and error, and how many stay, by reason."""
        terminal.print(f"{self._sent.total()} records {verb} sent back")
        shown = self._sent.most_common(MOST_ERRORS)
        for (topic, error), count in shown:
            terminal.print(f"  {count} to {topic}: {one_line(error) or 'no error is named'}")
        others = self._sent.total() - sum(count for _, count in shown)
        if others:
            terminal.print(f"  {others} with other errors")
        for reason, count in sorted(self._left.items()):
            terminal.print(f"{count} left: {reason}")

    def problems(self) -> list[str]:
        """What somebody has to do something about, each with the first letter of its kind."""
        return [
            f"{self._left[reason]} in {self._queue}: {reason} ({place}){HINTS.get(reason.name, '')}"
            for reason, place in self._first.items()
            if reason.is_problem
        ]


HINTS: Final = {
    "NO_TOPIC": "; give --topic, --to or --origin, or set "
    "errors.deadletterqueue.context.headers.enable=true",
    "AMBIGUOUS": "; give --origin or --to",
}


def _row_of(letter: DeadLetter, topic: str) -> Row:
    record = letter.record
    origin = "" if letter.partition is None else f"-{letter.partition}"
    origin += "" if letter.offset is None else f"@{letter.offset}"
    error = ": ".join(filter(None, (letter.error, letter.message)))
    return {
        "letter": f"{record.partition}:{record.offset}",
        "from": f"{letter.topic}{origin}" or None,
        "to": topic,
        "tries": letter.tries,
        "error": error or None,
    }


def _choice(arguments: Namespace, terminal: Terminal) -> Choice:
    """Which letters the options ask for."""
    from ottla.connect.tolerance import FAMILIES, Choice, HeaderFamily

    for option, number in (("-n", arguments.n), ("--max-tries", arguments.max_tries)):
        if number is not None and number < 1:
            raise UsageError(f"{option} takes a number from 1 on, not '{number}'")
    families = [each for each in FAMILIES if arguments.origin in (None, each.name)]
    if not families:
        name = arguments.origin.lower()
        families = [HeaderFamily(name, (), topic=name, reserved=False)]
    conditions = _conditions(arguments, terminal)
    return Choice(
        is_wanted=lambda letter: all(each(letter) for each in conditions),
        to=arguments.to,
        otherwise=arguments.topic,
        families=families,
        again=arguments.again,
        max_tries=MOST_TRIES if arguments.max_tries is None else arguments.max_tries,
        at_most=arguments.n,
        keeps_headers=arguments.keep_headers,
        keeps_timestamp=arguments.keep_timestamp,
        keeps_partition=arguments.keep_partition,
    )


def _conditions(arguments: Namespace, terminal: Terminal) -> list[Wanted]:
    """A test for each option that was given."""
    found: list[Wanted] = []
    if arguments.stage is not None:
        found.append(lambda letter: letter.stage == arguments.stage)
    if arguments.connector is not None:
        found.append(lambda letter: letter.connector == arguments.connector)
    origins = [_place("--from", text, has_topic=True) for text in getattr(arguments, "from")]
    if origins:
        found.append(
            lambda letter: any(
                letter.topic == topic and fits(letter.partition, letter.offset)
                for topic, fits in origins
            )
        )
    if places := [_place("--at", text, has_topic=False)[1] for text in arguments.at]:
        found.append(
            lambda letter: any(
                fits(letter.record.partition, letter.record.offset) for fits in places
            )
        )
    since, until = (_moment(arguments, name, terminal) for name in ("since", "until"))
    if since is not None:
        found.append(lambda letter: letter.record.timestamp_ms >= since)
    if until is not None:
        found.append(lambda letter: letter.record.timestamp_ms < until)
    if arguments.error is not None:
        text = arguments.error.lower()
        found.append(lambda letter: text in f"{letter.error}\n{letter.message}".lower())
    if arguments.key is not None:
        found.append(lambda letter: letter.record.key == arguments.key.encode())
    if headers := key_values(arguments.header):
        wanted = {(name, value.encode()) for name, value in headers.items()}
        found.append(lambda letter: wanted <= set(letter.record.headers))
    return found


def _place(option: str, text: str, *, has_topic: bool) -> tuple[str, Fits]:
    """A topic, if the option has one, and a test for a partition and an offset in it."""
    topic, _, rest = text.partition(":") if has_topic else ("", "", text)
    partition, _, offsets = rest.partition(":")
    first, is_range, last = offsets.partition("-")
    if not all(not number or number.isdecimal() for number in (partition, first, last)) or (
        offsets and not first
    ):
        raise UsageError(f"{option} takes {'TOPIC:' * has_topic}PARTITION:17-20, not '{text}'")
    lowest = int(first or 0)
    highest = int(last) if last else math.inf if is_range or not first else lowest

    def fits(number: int | None, offset: int | None) -> bool:
        if partition and number != int(partition):
            return False
        return not offsets or (offset is not None and lowest <= offset <= highest)

    return topic, fits


def _moment(arguments: Namespace, name: str, terminal: Terminal) -> int | None:
    text = getattr(arguments, name)
    moment = None if text is None else moment_ms(text, terminal.now_ms())
    if text is not None and moment is None:
        raise UsageError(f"--{name} takes 1h, '5m ago', 2026-03-02 or 2026-03-02T08:00Z: '{text}'")
    return moment
