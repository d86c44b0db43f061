"""`ottla mirror-maker`: Kafka's first mirror, consumers of some clusters and a producer to one."""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import add_flag, add_integer, load_properties, one_of, require
from ottla.cli.terminal import Terminal, check_reachable, interruptible, without_servers

if TYPE_CHECKING:
    from ottla import Producer
    from ottla.mirror.mirror_maker import MirrorMaker, MirrorSource

COMMIT_MS: Final = 60_000


class MirrorMakerCommand(Command):
    """Reads the topics of source clusters and writes them to a target, until it is stopped."""

    name = "mirror-maker"
    help = "Copy topics from source clusters to a target, as Kafka's first MirrorMaker does."
    examples = (
        "ottla mirror-maker --consumer.config site-a.properties --consumer.config "
        "site-b.properties --producer.config config/producer.properties --whitelist 'pages|clicks'",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--consumer.config",
            metavar="FILE",
            action="append",
            help="Required, once for each source cluster: a consumer's property file, with "
            "bootstrap.servers and group.id, or zk.connect and groupid as in 0.7.",
        )
        parser.add_argument(
            "--producer.config",
            metavar="FILE",
            help="Required. The property file of the producer to the target.",
        )
        parser.add_argument(
            "--whitelist",
            metavar="REGEX",
            help="The topics to copy; a comma means 'or'. Either this or --blacklist is required.",
        )
        parser.add_argument(
            "--blacklist", metavar="REGEX", help="The topics not to copy: all others are."
        )
        add_integer(parser, "--num.streams", "N", "How many consumers for each source. Default: 1.")
        add_integer(
            parser,
            "--offset.commit.interval.ms",
            "MS",
            f"How often offsets are committed, after all was acknowledged. Default: {COMMIT_MS}.",
        )
        parser.add_argument(
            "--abort.on.send.failure",
            metavar="true|false",
            choices=("true", "false"),
            default="true",
            help="true (default): end, without committing, when a record cannot be sent; false: "
            "log it, count it, and continue without it.",
        )
        parser.add_argument(
            "--message.handler",
            metavar="CLASS",
            help="package.module.Name of a class with handle(record), or of a function, that "
            "returns the records to send for one that was read.",
        )
        parser.add_argument(
            "--message.handler.args", metavar="TEXT", help="The argument to make that class with."
        )
        add_flag(parser, "--new.consumer", "Has no effect: the property file says which it is.")

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        given = {name.replace(".", "_"): value for name, value in vars(arguments).items()}
        check(given)
        from ottla.errors import KafkaError
        from ottla.mirror.mirror_maker import MirrorMaker, MirrorMakerRules, message_handler
        from ottla.runtime import SystemClock

        interval_ms = given["offset_commit_interval_ms"]
        rules = MirrorMakerRules(
            COMMIT_MS if interval_ms is None else interval_ms,
            given["abort_on_send_failure"] == "true",
            message_handler(given["message_handler"], given["message_handler_args"]),
        )
        is_over = threading.Event()
        with interruptible(is_over):
            sources = open_sources(given)
            producer = open_producer(given["producer_config"])
            with MirrorMaker(sources, producer, SystemClock(), rules) as maker:
                error: KafkaError | None = None
                stopper = threading.Thread(target=stop_when, args=(is_over, maker), daemon=True)
                stopper.start()
                try:
                    maker.run()
                except KafkaError as failure:
                    error = failure
                is_over.set()
                return conclude(maker, error, terminal)


def check(given: dict[str, Any]) -> None:
    """Raise UsageError unless the options belong together."""
    arguments = Namespace(**given)
    require(arguments, "--consumer.config", "--producer.config")
    one_of(arguments, ("--whitelist", "--blacklist"))
    if given["num_streams"] is not None and given["num_streams"] < 1:
        raise UsageError(f"--num.streams takes a number from 1 on, not '{given['num_streams']}'")
    if given["message_handler_args"] is not None and given["message_handler"] is None:
        raise UsageError("option --message.handler.args is used only with --message.handler")


def open_sources(given: dict[str, Any]) -> list[MirrorSource]:
    """The consumers of all source clusters; none stays open if one cannot be made."""
    from ottla.clients.legacy import Blacklist, Whitelist
    from ottla.mirror.mirror_maker import open_source

    white = given["whitelist"]
    topics = Blacklist(given["blacklist"]) if white is None else Whitelist(white)
    opened: list[MirrorSource] = []
    try:
        for file in given["consumer_config"]:
            settings = load_properties(file)
            servers = settings.get("bootstrap.servers")
            if servers:
                check_reachable(servers)
            opened += [
                open_source(settings, topics, number) for number in range(given["num_streams"] or 1)
            ]
    except BaseException:
        for source in opened:
            source.close()
        raise
    return opened


def open_producer(file: str) -> Producer:
    """The producer of a property file, which waits while the target is away."""
    from ottla.clients.producer.producer import Producer
    from ottla.mirror.mirror_maker import PRODUCER_SETTINGS

    settings = load_properties(file)
    servers = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    if not servers:
        raise UsageError(f"{file} must have bootstrap.servers, the target's brokers")
    check_reachable(servers)
    theirs = {k: v for k, v in settings.items() if k != "metadata.broker.list"}
    return Producer(servers, {**PRODUCER_SETTINGS, **without_servers(theirs)})


def stop_when(is_over: threading.Event, maker: MirrorMaker) -> None:
    is_over.wait()
    maker.stop()


def conclude(maker: MirrorMaker, error: Exception | None, terminal: Terminal) -> int:
    """Say how it ended; 1 if not all that was read was written."""
    terminal.note(f"mirror-maker: {maker.copied:,} records copied, {maker.dropped:,} not")
    if error is not None:
        terminal.note(f"error: {error}; offsets from there on are not committed")
    return int(error is not None)
