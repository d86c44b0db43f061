"""How long records take from a producer to a consumer, one at a time, as Kafka's tool measures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ottla import NewTopic, TopicPartition
from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.producer_perf_test import LATENCY_POLL_MS, MOST_BYTES, percentile, text_payloads
from ottla.cli.property_files import settings_in
from ottla.cli.terminal import Terminal, with_port
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.config.whole_number import number_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from ottla import Consumer, Producer


LATENCY_WORDS: Final = (
    ("broker_list", "HOST:PORT,...", "The brokers to ask first."),
    ("topic", "TOPIC", "The topic; it is created, with one partition, where it does not exist."),
    ("num_messages", "COUNT", "How many records are sent, one after the other."),
    ("producer_acks", "ACKS", "1 or all."),
    ("message_size", "BYTES", "The size of each record."),
)


class EndToEndLatencyCommand(Command):
    """Sends a record, waits until a consumer has it, and sends the next one."""

    name = "e2e-latency"
    examples = ("ottla e2e-latency localhost:9092 test 10000 1 20",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        for word, metavar, text in LATENCY_WORDS:
            parser.add_argument(word, metavar=metavar, help=text)
        parser.add_argument(
            "properties_file", metavar="FILE", nargs="?", help="Property file for the clients."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        count, size = (
            _positive(name, getattr(arguments, name)) for name in ("num_messages", "message_size")
        )
        if arguments.producer_acks not in ("1", "all"):
            raise UsageError("Latency testing requires synchronous acknowledgement: 1 or all")
        servers = ",".join(map(with_port, arguments.broker_list.split(",")))
        file = arguments.properties_file
        settings = settings_in(file)
        _create_if_missing(arguments.topic, servers, settings, terminal)
        for_producer = {"linger.ms": "0", "acks": arguments.producer_acks}
        for_consumer = {"enable.auto.commit": "false", "fetch.max.wait.ms": "0"}
        with (
            terminal.clients.consumer(servers, {**settings, **for_consumer}) as consumer,
            terminal.clients.producer(servers, {**settings, **for_producer}) as producer,
        ):
            _seek_to_end(consumer, arguments.topic)
            payloads = text_payloads(size)
            taken = []
            for number in range(count):
                taken.append(_round_trip_ms(producer, consumer, arguments.topic, next(payloads)))
                if number % 1000 == 0:
                    terminal.print(f"{number}\t{taken[-1]}")
        in_order = sorted(map(int, taken))
        terminal.print(f"Avg latency: {sum(taken) / count:.4f} ms")
        terminal.print(
            "Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(
                *(percentile(in_order, share) for share in (0.5, 0.99, 0.999))
            )
        )
        return 0


def _positive(name: str, text: str) -> int:
    number = number_of(text, 1, MOST_BYTES)
    if number is None:
        raise UsageError(f"{name} must be a number from 1 to {MOST_BYTES}, not '{text}'")
    return number


def _create_if_missing(
    topic: str, servers: str, settings: Mapping[str, str], terminal: Terminal
) -> None:
    with terminal.admin(servers, settings) as admin:
        if topic not in admin.list_topics():
            terminal.print(
                f'Topic "{topic}" does not exist. '
                "Will create topic with 1 partition(s) and replication factor = 1"
            )
            create_missing_topics(admin, [NewTopic(topic, 1, 1)])


def _seek_to_end(consumer: Consumer, topic: str) -> None:
    partitions = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
    consumer.assign(partitions)
    consumer.seek_to_end(partitions)
    for partition in partitions:
        consumer.position(partition)


def _round_trip_ms(producer: Producer, consumer: Consumer, topic: str, payload: bytes) -> float:
    """Milliseconds from the send until the consumer has the record; it must be this one alone."""
    begun = time.perf_counter_ns()
    producer.send(topic, payload).result()
    records = consumer.poll(LATENCY_POLL_MS)
    elapsed_ms = (time.perf_counter_ns() - begun) / 1_000_000
    if not records:
        raise CommandError(f"no record came within {LATENCY_POLL_MS} ms")
    if len(records) > 1 or records[0].value != payload:
        raise CommandError(f"{len(records)} records came that are not the one sent")
    return elapsed_ms
