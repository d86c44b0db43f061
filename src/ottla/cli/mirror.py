"""`ottla mirror`: the flows of mm2.properties between clusters, and the steps of a failover.

`ottla mirror-maker` is Kafka's first mirror: consumers of some clusters and a producer to one.
"""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.jmx_options import metrics_listener
from ottla.cli.options import LARGEST_INT, add_flag, add_integer, one_of, require
from ottla.cli.property_files import load_properties
from ottla.cli.table import Row, add_format, show_rows
from ottla.cli.terminal import Terminal, check_reachable, interruptible, without_servers
from ottla.clients.admin.descriptions import IDLE_STATES
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.legacy import Blacklist, Whitelist
from ottla.clients.producer.producer import Producer
from ottla.errors import KafkaError
from ottla.mirror.checkpoint import commit_translated, read_checkpoints
from ottla.mirror.failback import Failback
from ottla.mirror.failover import rehearse
from ottla.mirror.flow import parse_plan
from ottla.mirror.mirror import TURN_S, Mirror, check_plan
from ottla.mirror.mirror_maker import (
    PRODUCER_SETTINGS,
    MirrorMaker,
    MirrorMakerRules,
    message_handler,
    open_source,
)
from ottla.mirror.topic_sync import TopicSync, refused_topics
from ottla.runtime import SystemClock
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.mirror.failback import Returned
    from ottla.mirror.failover import Rehearsed
    from ottla.mirror.flow import Flow, MirrorPlan
    from ottla.mirror.mirror_maker import MirrorSource

T = TypeVar("T")
STATUS_S: Final = 10
DEMO_RECORDS: Final = 100_000
DEMO_PLACE: Final = TopicPartition("pages", 0)
DEMO_FLOW: Final = {
    "clusters": "lisbon, porto",
    "lisbon->porto.enabled": "true",
    "topics": "pages",
    "emit.heartbeats.enabled": "false",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
}


class MirrorCommand(Command):
    """Runs all flows of a properties file, until it is stopped."""

    name = "mirror"
    examples = (
        "ottla mirror --demo",
        "ottla mirror mm2.properties --plan",
        "ottla mirror mm2.properties",
        "ottla mirror mm2.properties --failover 'lisbon->porto' --rehearse",
        "ottla mirror mm2.properties --failback 'lisbon->porto' --rehearse",
    )
    default_log_level = "ERROR"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", nargs="?", help="The properties: mm2.properties."
        )
        add_flag(
            parser, "--demo", "Start two clusters in this process, and copy from one to the other."
        )
        parser.add_argument(
            "--clusters",
            metavar="ALIAS",
            nargs="+",
            default=[],
            help="Only the flows into these clusters: those that are near.",
        )
        add_flag(parser, "--plan", "Print what would be made and changed, and do nothing.")
        parser.add_argument(
            "--failover",
            metavar="FLOW",
            help="Move the groups of the flow source->target to where they continue there. The "
            "source may be down.",
        )
        parser.add_argument(
            "--failback",
            metavar="FLOW",
            help="After a failover of this flow, when its source is up again: move the groups back "
            "there, and say what only one of both clusters has.",
        )
        add_flag(
            parser,
            "--rehearse",
            "With --failover or --failback: only say what it would find and do.",
        )
        add_integer(
            parser,
            "--status-interval",
            "SECONDS",
            f"How often a line says where each flow stands. Default: {STATUS_S}; 0: never.",
            least=0,
        )
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        given = [arguments.plan, arguments.failover, arguments.failback]
        if arguments.rehearse and not (arguments.failover or arguments.failback):
            raise UsageError("option --rehearse is used only with --failover or --failback")
        if len(list(filter(None, given))) > 1:
            raise UsageError("only one of --plan, --failover and --failback may be given")
        if bool(arguments.file) == arguments.demo:
            raise UsageError("either a properties file or --demo must be given")
        if arguments.demo:
            return run_demo(terminal)
        properties = load_properties(arguments.file)
        if not any(given):
            properties |= metrics_listener(properties)
        plan = parse_plan(properties)
        if arguments.clusters:
            plan = plan.into(arguments.clusters)
        if arguments.plan:
            return print_plan(plan, terminal)
        if arguments.failover:
            flow = plan.flow(arguments.failover)
            return failover(flow, terminal, arguments.rehearse, arguments.format)
        if arguments.failback:
            return failback(
                plan, arguments.failback, terminal, arguments.rehearse, arguments.format
            )
        interval = STATUS_S if arguments.status_interval is None else arguments.status_interval
        return run_mirror(plan, terminal, interval)


def run_mirror(plan: MirrorPlan, terminal: Terminal, interval_s: int) -> int:
    """Run until a signal; a line for each flow now and then, and at the end."""
    is_over = threading.Event()
    clock = SystemClock()
    with interruptible(is_over), Mirror(plan, clock) as mirror:
        mirror.start()
        if mirror.metrics is not None:
            terminal.note(f"metrics: {mirror.metrics.url}")
        shown = Shown(mirror, terminal)
        next_ms = clock.monotonic_ms()
        while not is_over.wait(TURN_S):
            mirror.check()
            shown.news()
            if interval_s and clock.monotonic_ms() >= next_ms:
                next_ms = clock.monotonic_ms() + interval_s * 1000
                shown.lines()
    shown.news()
    shown.lines()
    return 0


class Shown:
    """The states of a mirror that a person has seen already."""

    def __init__(self, mirror: Mirror, terminal: Terminal) -> None:
        self._mirror = mirror
        self._terminal = terminal
        self._seen: Counter[Any] = Counter()

    def lines(self) -> None:
        """Where each flow stands."""
        for status in self._mirror.statuses():
            self._terminal.print(status.line())
        self._terminal.out.flush()

    def news(self) -> None:
        """Records lost, flows that stand still, and topics left out, since the last time."""
        for name, text in self._unseen(self._mirror.notices()):
            self._terminal.note(f"{name}: {text}")
        for name, gap in self._unseen(self._mirror.gaps()):
            self._terminal.note(f"{name}: LOST {gap}")

    def _unseen(self, found: Sequence[tuple[str, T]]) -> list[tuple[str, T]]:
        """What has come since the last time, of any flow; the same may come again."""
        now = Counter(found)
        fresh = now - self._seen
        self._seen |= now
        return list(fresh.elements())


def run_demo(terminal: Terminal) -> int:
    """Two clusters, a topic and a group in one of them, and a flow until the other has both."""
    is_over = threading.Event()
    topic, copy = DEMO_PLACE.topic, f"lisbon.{DEMO_PLACE.topic}"
    with InProcessBroker() as lisbon, InProcessBroker() as porto:
        fill_demo(lisbon.bootstrap_servers)
        terminal.print(f"lisbon: {DEMO_RECORDS:,} records in {topic}, read by the group report")
        servers = {"lisbon": lisbon.bootstrap_servers, "porto": porto.bootstrap_servers}
        addresses = {f"{alias}.bootstrap.servers": each for alias, each in servers.items()}
        with (
            interruptible(is_over),
            Mirror(parse_plan({**DEMO_FLOW, **addresses}), SystemClock()) as mirror,
        ):
            mirror.start()
            offsets: Mapping[TopicPartition, int] = {}
            while DEMO_RECORDS not in offsets.values() and not is_over.wait(TURN_S):
                mirror.check()
                (status,) = mirror.statuses()
                terminal.remark(status.line())
                offsets = porto.committed("report")
            (status,) = mirror.statuses()
            terminal.print(status.line())
        for partition, offset in offsets.items():
            terminal.print(f"porto: the group report continues at offset {offset:,} of {copy}")
            left = len(porto.records(copy, partition=partition.partition)) - offset
            terminal.print(f"lost: {DEMO_RECORDS - offset - left:,}, to read again: {left:,}")
    return int(not offsets)


def fill_demo(servers: str) -> None:
    """The records, and a group that has read all of them."""
    with Producer(servers) as producer:
        for number in range(DEMO_RECORDS):
            producer.send(DEMO_PLACE.topic, f"/page/{number}", partition=DEMO_PLACE.partition)
    with Consumer(servers, group_id="report", enable_auto_commit=False) as consumer:
        consumer.assign([DEMO_PLACE])
        consumer.commit({DEMO_PLACE: DEMO_RECORDS})


def print_plan(plan: MirrorPlan, terminal: Terminal) -> int:
    """The plan of each enabled flow, from both of its clusters as they are now."""
    check_plan(plan)
    for flow in plan.enabled():
        with (
            terminal.admin(*at(flow.source.settings("admin"))) as source,
            terminal.admin(*at(flow.target.settings("admin"))) as target,
        ):
            sync = TopicSync(flow, source, target)
            sync.check_clusters()
            listed = source.list_topics()
            refused = refused_topics(flow, plan, listed)
            topics = sync.topics(refused)
            wanted = flow.group_filter()
            groups = [each.group_id for each in source.list_groups() if wanted.takes(each.group_id)]
            terminal.print(f"{flow.name}: {len(topics.sources)} topics, {len(groups)} groups")
            for topic in topics.sources:
                terminal.print(f"  copy {topic} to {flow.remote(topic)}")
            for line in (*sync.changes(topics).lines(), *sync.notices):
                terminal.print(f"  {line}")
            for topic, way in sorted(refused.items()):
                terminal.print(f"  leave out {topic}: it would go round by {way}")
            for topic in flow.named_circles(listed):
                terminal.print(f"  leave out {topic}: its name says that it came by this way")
            if flow.config.sync_group_offsets_enabled:
                for group in sorted(groups):
                    terminal.print(f"  keep group {group} where it can continue")
    return 0


def at(settings: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The brokers of a client's settings, and the settings."""
    return settings["bootstrap.servers"], settings


def row_of(found: Rehearsed) -> Row:
    """A group's partition in words of the table."""
    return {
        "group": found.group,
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "source_offset": found.upstream,
        "target_offset": found.downstream,
        "to_read": found.to_read,
        "now": "ready" if found.is_ready else "not committed",
    }


def failover(flow: Flow, terminal: Terminal, is_rehearsal: bool, format: str) -> int:
    """Say where each group continues at the target, and unless it is a rehearsal move it there.

    1 if a group cannot be moved, since it has members there.
    """
    with terminal.admin(*at(flow.target.settings("admin"))) as target:
        checkpoints = read_checkpoints(flow.target, flow.checkpoints_topic, SystemClock())
        found = rehearse(target, checkpoints)
        if not found:
            raise CommandError(
                f"{flow.checkpoints_topic} of {flow.target.alias} has no checkpoints: a group has "
                "its first one within seconds, once it has committed and what it reads is copied"
            )
        show_rows([row_of(each) for each in found], format, terminal)
        if not is_rehearsal:
            done = commit_translated(target, checkpoints, checkpoints.emitted)
            terminal.note(f"{sum(map(len, done.values()))} offsets of {len(done)} groups committed")
        busy = sorted({each.group for each in found if each.state not in IDLE_STATES})
        if busy:
            terminal.note(f"with members at {flow.target.alias}, and left alone: {', '.join(busy)}")
        return int(bool(busy) and any(not e.is_ready for e in found if e.group in busy))


def failback(
    plan: MirrorPlan, name: str, terminal: Terminal, is_rehearsal: bool, format: str
) -> int:
    """Print the records that only one cluster has and where each group continues; move groups back.

    1 if a group cannot be moved, since it has members at the source.
    """
    flow = plan.flow(name)
    ends = (flow.target.alias, flow.source.alias)
    flows = (*plan.flows, *plan.elsewhere)
    reverse = next((f for f in flows if (f.source.alias, f.target.alias) == ends), None)
    with (
        terminal.admin(*at(flow.source.settings("admin"))) as source,
        terminal.admin(*at(flow.target.settings("admin"))) as target,
    ):
        way = Failback(flow, reverse, source, target, SystemClock())
        found = way.returned()
        show_rows([returned_row(each) for each in found], format, terminal)
        for line in way.lines():
            terminal.note(line)
        if not is_rehearsal:
            done = way.commit(found)
            terminal.note(f"{sum(map(len, done.values()))} offsets of {len(done)} groups committed")
        busy = sorted({e.group for e in found if e.state not in IDLE_STATES and not e.is_ready})
        if busy:
            terminal.note(f"with members at {flow.source.alias}, and left alone: {', '.join(busy)}")
        return int(bool(busy))


def returned_row(found: Returned) -> Row:
    """A group's partition on the way back, in words of the table."""
    known = "ready" if found.is_ready else "not committed"
    return {
        "group": found.group,
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "target_offset": found.there,
        "source_offset": found.offset,
        "to_read": found.to_read,
        "now": "not known" if found.offset is None else known,
    }


COMMIT_MS: Final = 60_000


class MirrorMakerCommand(Command):
    """Reads the topics of source clusters and writes them to a target, until it is stopped."""

    name = "mirror-maker"
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
        add_integer(
            parser,
            "--num.streams",
            "N",
            "How many consumers for each source. Default: 1.",
            least=1,
            most=LARGEST_INT,
        )
        add_integer(
            parser,
            "--offset.commit.interval.ms",
            "MS",
            f"How often offsets are committed, after all was acknowledged. Default: {COMMIT_MS}.",
            least=1,
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
    if given["message_handler_args"] is not None and given["message_handler"] is None:
        raise UsageError("option --message.handler.args is used only with --message.handler")


def open_sources(given: dict[str, Any]) -> list[MirrorSource]:
    """The consumers of all source clusters; none stays open if one cannot be made."""
    white = given["whitelist"]
    topics = Blacklist(given["blacklist"]) if white is None else Whitelist(white)
    opened: list[MirrorSource] = []
    try:
        for file in given["consumer_config"]:
            settings = load_properties(file)
            servers = settings.get("bootstrap.servers")
            if servers:
                check_reachable(servers, settings)
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
    settings = load_properties(file)
    servers = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    if not servers:
        raise UsageError(f"{file} must have bootstrap.servers, the target's brokers")
    check_reachable(servers, settings)
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
