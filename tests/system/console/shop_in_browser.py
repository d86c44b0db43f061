"""What a browser finds in the shop: records, metrics, and a node of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.clients.connect_rest import ConnectRest
from ottla.clients.mirror_records import Heartbeat
from ottla.connect.connect_worker import ConnectWorker
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.structs import ClientEntity
from ottla.testing import wait_until

START = 1_795_878_000_000
SERIES = 'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'
METRICS = f"# HELP {SERIES.partition('{')[0]} Bytes in.\n{SERIES} 4096\nkafka_p99 NaN\n"
NODE = {
    "path": "/config/topics",
    "data": '{"version": 1, "config": {"cleanup.policy": "compact"}}',
    "is_hidden": True,
    "version": 2,
    "created_ms": START,
    "modified_ms": START,
    "is_ephemeral": False,
    "data_length": 55,
    "children": ["orders", "<script>document.title = 'run'</script>"],
    "number_of_children": 2,
}
HOSTILE = (
    b"<script>document.title = 'run'</script>",
    b'"><img src=x onerror="document.title = \'run\'">',
    b"{{7*7}} \x1b[2J \xe2\x80\xae",
    bytes(range(64)),
    b"\xff\xfe\x00\x01",
    b"x" * 100_000,
    b'{"id": 9007199254740993, "price": 1.10, "big": 23958446825181076828}',
    None,
    b"",
)
STATEMENT = "SELECT value.user, count(*), sum(value.amount) FROM orders GROUP BY 1 ORDER BY 2"
LETTERS = "hostile.dead"
TOPICS = {"orders": 3, "hostile": 1, "rejected": 1, "quiet": 1, "west.heartbeats": 1, "receipts": 1}
"""The shop's topics, with their partitions."""


def add_topic(servers: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic with one replica, and wait until each broker knows it."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, configs=configs)])
        wait_until(lambda: name in admin.list_topics(), f"the topic {name}")


def fill(servers: str) -> None:
    """Orders of a shop, and records that mean harm."""
    for name, partitions in TOPICS.items():
        policy = {"cleanup.policy": "compact"} if name == "quiet" else {}
        add_topic(servers, name, partitions, **policy)
    with Producer(servers) as producer:
        for number in range(120):
            value = {
                "id": number + 9007199254740993,
                "user": f"u{number % 9}",
                "amount": number * 1.25,
                "status": "error" if number % 10 == 7 else "paid",
            }
            producer.send(
                "orders",
                json.dumps(value).encode(),
                key=b"k%d" % (number % 17),
                timestamp_ms=START + number * 1_731,
                headers=[("trace", b"%032x" % number)] if number % 3 else [],
            )
        for number in range(3):
            failed = {"topic": "orders", "partition": 1, "offset": number}
            headers = [
                (f"__connect.errors.{name}", str(each).encode()) for name, each in failed.items()
            ]
            producer.send("rejected", b"{}", headers=headers)
        beat = Heartbeat("west", "shop", START)
        producer.send("west.heartbeats", beat.value(), key=beat.key())
        for value in HOSTILE:
            producer.send("hostile", value, key=HOSTILE[0], headers=[("<b>", HOSTILE[1])])


def guard(servers: str) -> None:
    """Rights on the orders, a user and a quota; the broker has an authorizer."""
    entry = AccessControlEntry
    orders = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    allowed, denied = AclPermissionType.ALLOW, AclPermissionType.DENY
    rights = [
        entry("User:alice", "*", AclOperation.READ, allowed),
        entry("User:mallory", "*", AclOperation.READ, denied),
    ]
    with Admin(servers) as admin:
        admin.create_acls([AclBinding(orders, each) for each in rights])
        admin.alter_user_scram_credentials([UserScramCredential("alice", "SCRAM-SHA-256", "s")])
        admin.alter_client_quotas({ClientEntity("alice"): {"producer_byte_rate": 1024.0}})


def sink_orders(worker: ConnectWorker, folder: Path) -> None:
    """Two sinks of records that are no JSON: `strict` fails, `lenient` writes dead letters."""
    rest = ConnectRest(worker.url)
    common = {
        "connector.class": "FileStreamSink",
        "topics": "hostile",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "consumer.override.auto.offset.reset": "earliest",
    }
    letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": LETTERS,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    for name, own in (("strict", {}), ("lenient", letters)):
        config = {**common, **own, "name": name, "file": str(folder / f"{name}.txt")}
        rest.ask("POST", "/connectors", {"name": name, "config": config})

    def states() -> list[str]:
        found = rest.ask("GET", "/connectors?expand=status")
        return [found[each]["status"]["tasks"][0]["state"] for each in ("strict", "lenient")]

    wait_until(lambda: states() == ["FAILED", "RUNNING"], "a task that failed", seen=states)


@contextmanager
def readers(servers: str) -> Iterator[None]:
    """Two groups of the orders, of which one has a member, and a transaction that stays open."""
    orders = [TopicPartition("orders", number) for number in range(3)]
    with (
        Admin(servers) as admin,
        Consumer(servers, group_id="billing", client_id="billing-1") as member,
        Producer(
            servers, transactional_id="settlement", transaction_timeout_ms=600_000
        ) as producer,
    ):
        admin.alter_group_offsets("nightly", dict.fromkeys(orders, 3))
        member.subscribe(["orders"])
        wait_until(member.assignment, "the assignment", meanwhile=lambda: member.poll(20))
        member.commit({each: OffsetAndMetadata(5) for each in orders})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("receipts", b"open").result(60)
        yield
        producer.abort_transaction()
