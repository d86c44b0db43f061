"""Kafka's verifiable clients: each event of a producer or a consumer is a line of JSON."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from ottla import RebalanceListener
from ottla.cli.command import Command
from ottla.cli.exact_json import json_line
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_flag,
    add_integer,
    bootstrap_server,
    require,
)
from ottla.cli.producer_perf_test import Throttle
from ottla.cli.property_files import settings_in
from ottla.cli.terminal import Terminal, interruptible
from ottla.errors import KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from ottla import Consumer, ConsumerRecord, Producer, RecordMetadata

POLL_MS: Final = 200
"""How long a consumer waits for records before it looks whether it shall stop."""
PROTOCOLS: Final = ("classic", "consumer")


class Events:
    """Prints events, from any thread, each with its time and its name first."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._lock = threading.Lock()

    def print(self, name: str, **facts: Any) -> None:
        event = {"timestamp": self.terminal.now_ms(), "name": name, **facts}
        with self._lock:
            self.terminal.print(json_line(event, is_short=True))
            self.terminal.out.flush()


class VerifiableProducerCommand(Command):
    """Sends 0, 1, 2, ... and prints which of them were acknowledged, until it is stopped."""

    name = "verifiable-producer"
    examples = (
        "ottla verifiable-producer --bootstrap-server localhost:9092 --topic test "
        "--max-messages 100",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to write to.")
        for option, metavar, text in (
            ("--max-messages", "COUNT", "Stop after so many. Default: -1, never."),
            ("--throughput", "RATE", "About so many a second. Default: -1, no limit."),
        ):
            add_integer(parser, option, metavar, text, default=-1)
        parser.add_argument(
            "--acks",
            metavar="ACKS",
            choices=("-1", "0", "1"),
            default="-1",
            help="What an acknowledgement means: -1 (default, all in-sync replicas), 0 or 1.",
        )
        parser.add_argument("--producer.config", metavar="FILE", help="Property file.")
        add_integer(
            parser,
            "--message-create-time",
            "MS",
            "The timestamp of the first record, in milliseconds since 1970; time passes from "
            "there on. Default: now.",
            least=0,
        )
        add_integer(parser, "--value-prefix", "NUMBER", "Values are NUMBER.0, NUMBER.1, ...")
        add_integer(
            parser,
            "--repeating-keys",
            "COUNT",
            "Keys are 0 to COUNT - 1, again and again.",
            least=1,
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--topic")
        file = vars(arguments)["producer.config"]
        settings = {"acks": arguments.acks, "retries": "0", "enable.idempotence": "false"}
        settings |= settings_in(file)
        events, is_over = Events(terminal), threading.Event()
        begun_ms = terminal.now_ms()
        with interruptible(is_over):
            with terminal.clients.producer(bootstrap_server(arguments), settings) as producer:
                events.print("startup_complete")
                run = VerifiableProducer(producer, arguments, events)
                run.send_all(is_over)
            events.print("shutdown_complete")
        seconds = max(1, terminal.now_ms() - begun_ms) / 1000
        events.print(
            "tool_data",
            sent=run.sent,
            acked=run.acked,
            target_throughput=arguments.throughput,
            avg_throughput=run.acked / seconds,
        )
        return 0


class VerifiableProducer:
    """One run: the number of records sent, and the number acknowledged."""

    def __init__(self, producer: Producer, arguments: Namespace, events: Events) -> None:
        self.producer = producer
        self.arguments = arguments
        self.events = events
        self.sent = self.acked = 0
        self._begun_ms = events.terminal.now_ms()

    def send_all(self, is_over: threading.Event) -> None:
        """Send until all were sent, or it is over."""
        throttle = Throttle(self.arguments.throughput)
        while not is_over.is_set() and self.sent != self.arguments.max_messages:
            self._send()
            throttle.wait(self.sent, is_over.wait)

    def _send(self) -> None:
        number, prefix, keys = (
            self.sent,
            self.arguments.value_prefix,
            self.arguments.repeating_keys,
        )
        value = str(number) if prefix is None else f"{prefix}.{number}"
        key = str(number % keys) if keys else None
        first_ms = self.arguments.message_create_time
        timestamp_ms = (
            None if first_ms is None else first_ms + self.events.terminal.now_ms() - self._begun_ms
        )

        def delivered(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            self._print_outcome(key, value, metadata, error)

        self.sent += 1
        try:
            self.producer.send(
                self.arguments.topic,
                value,
                key=key,
                timestamp_ms=timestamp_ms,
                on_delivery=delivered,
            )
        except KafkaError as error:
            delivered(None, error)

    def _print_outcome(
        self, key: str | None, value: str, metadata: RecordMetadata | None, error: KafkaError | None
    ) -> None:
        if metadata is not None and error is None:
            self.acked += 1
            self.events.print(
                "producer_send_success",
                key=key,
                value=value,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )
        else:
            self.events.print(
                "producer_send_error",
                key=key,
                value=value,
                topic=self.arguments.topic,
                exception=f"class {type(error).__name__}",
                message=str(error),
            )


class VerifiableConsumerCommand(Command):
    """Reads a topic as a member of a group, and prints each event of its membership."""

    name = "verifiable-consumer"
    examples = (
        "ottla verifiable-consumer --bootstrap-server localhost:9092 --topic test --group-id check",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to read.")
        parser.add_argument("--group-id", metavar="ID", help="Required. The group.")
        parser.add_argument("--group-instance-id", metavar="ID", help="A static member's id.")
        parser.add_argument(
            "--group-protocol",
            metavar="PROTOCOL",
            type=str.lower,
            choices=PROTOCOLS,
            default=PROTOCOLS[0],
            help="classic (default) or consumer.",
        )
        parser.add_argument(
            "--group-remote-assignor",
            metavar="NAME",
            help="The coordinator's assignor, with the protocol consumer.",
        )
        add_integer(
            parser, "--max-messages", "COUNT", "Stop after so many. Default: -1, never.", default=-1
        )
        add_integer(
            parser,
            "--session-timeout",
            "MS",
            "The session timeout. Default: 30000.",
            least=0,
            most=LARGEST_INT,
            default=30_000,
        )
        add_flag(parser, "--verbose", "Print each record as well.")
        add_flag(parser, "--enable-autocommit", "Commit in the background, not after each poll.")
        parser.add_argument(
            "--reset-policy",
            metavar="POLICY",
            choices=("earliest", "latest", "none"),
            default="earliest",
            help="Where to begin without an offset: earliest (default), latest or none.",
        )
        parser.add_argument(
            "--assignment-strategy",
            metavar="CLASS",
            default="range",
            help="The assignor, by its name or Kafka's class, with the protocol classic. Default: "
            "range.",
        )
        parser.add_argument("--consumer.config", metavar="FILE", help="Property file.")

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--topic", "--group-id")
        events, is_over = Events(terminal), threading.Event()
        settings = self._settings(arguments)
        with interruptible(is_over):
            with terminal.clients.consumer(bootstrap_server(arguments), settings) as consumer:
                events.print("startup_complete")
                VerifiableConsumer(consumer, arguments, events).read(is_over)
            events.print("shutdown_complete")
        return 0

    def _settings(self, arguments: Namespace) -> dict[str, str]:
        file = vars(arguments)["consumer.config"]
        settings = settings_in(file)
        settings |= {
            "group.id": arguments.group_id,
            "group.protocol": arguments.group_protocol,
            "auto.offset.reset": arguments.reset_policy,
            "enable.auto.commit": str(arguments.enable_autocommit).lower(),
        }
        if arguments.group_instance_id:
            settings["group.instance.id"] = arguments.group_instance_id
        if arguments.group_protocol == "classic":
            settings["session.timeout.ms"] = str(arguments.session_timeout)
            settings["partition.assignment.strategy"] = arguments.assignment_strategy
        elif arguments.group_remote_assignor:
            settings["group.remote.assignor"] = arguments.group_remote_assignor
        return settings


class VerifiableConsumer:
    """One run: reads, prints and commits until it is over."""

    def __init__(self, consumer: Consumer, arguments: Namespace, events: Events) -> None:
        self.consumer = consumer
        self.arguments = arguments
        self.events = events
        self.read_records = 0

    def read(self, is_over: threading.Event) -> None:
        """Read until enough have come, or it is over."""
        events = self.events

        class Rebalances(RebalanceListener):
            """Prints the partitions that the group assigns and revokes."""

            def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
                events.print("partitions_revoked", partitions=_partition_entries(partitions))

            def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
                events.print("partitions_assigned", partitions=_partition_entries(partitions))

        self.consumer.subscribe([self.arguments.topic], listener=Rebalances())
        while not is_over.is_set() and self.read_records != self.arguments.max_messages:
            records = self.consumer.poll(POLL_MS)
            if records:
                self._received(records)

    def _received(self, records: list[ConsumerRecord]) -> None:
        """Print and commit the rest of these records."""
        left = self.arguments.max_messages - self.read_records
        wanted = records if self.arguments.max_messages < 0 else records[:left]
        self.read_records += len(wanted)
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in wanted:
            partition = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(partition, []).append(record)
            if self.arguments.verbose:
                self.events.print(
                    "record_data",
                    key=_text(record.key),
                    value=_text(record.value),
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                )
        self.events.print(
            "records_consumed",
            count=len(wanted),
            partitions=[
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "count": len(own),
                    "minOffset": own[0].offset,
                    "maxOffset": own[-1].offset,
                }
                for partition, own in by_partition.items()
            ],
        )
        if not self.arguments.enable_autocommit:
            self._commit({each: own[-1].offset + 1 for each, own in by_partition.items()})

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        facts: dict[str, Any] = {
            "offsets": [
                {"topic": each.topic, "partition": each.partition, "offset": offset}
                for each, offset in offsets.items()
            ]
        }
        try:
            self.consumer.commit(offsets)
        except KafkaError as error:
            self.events.print("offsets_committed", **facts, error=str(error), success=False)
        else:
            self.events.print("offsets_committed", **facts, success=True)


def _partition_entries(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
