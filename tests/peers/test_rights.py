"""A broker of Kafka 3.9 and one of Ottla with the same ACLs: both say the same to everybody.

Each has a chroot of one ZooKeeper server. Clients log in by PLAIN, one user for each row of the
matrix of rights; the tools of both write into the chroot of the other.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any, NamedTuple

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import ZooKeeperKafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from rights_matrix import CLUSTER as CLUSTER_TYPE
from rights_matrix import DENIED, KAFKA_CLUSTER, MISSING, ROWS, THERE, Op, Right, Row
from rights_matrix import GROUP as GROUP_TYPE
from rights_matrix import TOPIC as TOPIC_TYPE
from rights_matrix import TXID as TXID_TYPE
from rights_world import acl, error_codes

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.errors import KafkaError, SaslAuthenticationError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.message import Request, request_class
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.runtime.free_port import free_port
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LIMIT_S = 60
LEVELS = ("none", "describe", "full")
PASSING = {0, 14, 15, 16}
"""A coordinator whose topic has only just been made says so."""
BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
}
"""What they would do with the right is not for a test of it."""


KRAFT_ONLY = ({35}, {42})
"""What Kafka says of an API, or of a kind of resource, that it serves with KRaft only."""
DIFFERENT = {
    ("FETCH as a follower", "full"): "followers are served on the listener of the brokers only",
    ("ADD_PARTITIONS_TO_TXN as a broker", "full"): "and so are brokers that ask for transactions",
    ("OFFSET_FETCH", "none"): "in versions 0 and 1 Kafka 3.9 answers without any partition, and "
    "so without an error",
    ("DESCRIBE_USER_SCRAM_CREDENTIALS", "none"): "Kafka 3.9 does not answer where no user is named",
}
"""Where Ottla's answer is another, and why; what it is, the matrix of the unit tests holds."""


class Side(NamedTuple):
    """A broker: where it serves everybody, and where users log in."""

    name: str
    open_port: int
    secure_port: int
    chroot: str


def user_of(number: int, level: str, topic: str) -> str:
    """One who has the rights of a level for a row."""
    return f"{level}-{number}-{topic}" if level == "full" else f"{level}-{topic}"


def topic_of(number: int, which: str) -> str:
    """A topic of the row's own: some of the requests delete it."""
    return f"{which}-{number}"


def rights(row: Row, number: int, level: str, which: str) -> list[Right]:
    topic = topic_of(number, which)
    if level == "full":
        return row.full(topic)
    if level == "none":
        return []
    return [
        (Op.DESCRIBE, TOPIC_TYPE, topic),
        *((Op.DESCRIBE, GROUP_TYPE, group) for group in ("g", "k", "x")),
        (Op.DESCRIBE, TXID_TYPE, "t"),
        (Op.DESCRIBE, CLUSTER_TYPE, KAFKA_CLUSTER),
    ]


CASES = [
    (row, number, level, which)
    for number, row in enumerate(ROWS)
    for level in LEVELS
    for which in (THERE, MISSING)
]
USERS = sorted({user_of(number, level, which) for _, number, level, which in CASES})


def settings(open_port: int, secure_port: int) -> dict[str, object]:
    """Those of both brokers."""
    users = " ".join(f'user_{user}="secret"' for user in USERS)
    return {
        "broker.id": 0,
        "listeners": f"PLAINTEXT://127.0.0.1:{open_port},SECURE://127.0.0.1:{secure_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{open_port},"
        f"SECURE://127.0.0.1:{secure_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.secure.plain.sasl.jaas.config": f"{MODULE} required {users};",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security."
        "scram.ScramLoginModule required;",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "zookeeper.session.timeout.ms": 10_000,
        "zookeeper.connection.timeout.ms": 30_000,
    }


@pytest.fixture(scope="module")
def sides(zookeeper, tmp_path_factory) -> Iterator[list[Side]]:
    """Kafka and Ottla with the same topics and the same ACLs."""
    folder = tmp_path_factory.mktemp("rights")
    found = [
        Side(name, free_port("127.0.0.1"), free_port("127.0.0.1"), f"/rights-{name}")
        for name in ("kafka", "ottla")
    ]
    theirs, ours = found
    kafka = ZooKeeperKafkaBroker(
        KafkaTools("3.9", kafka_jars("3.9")),
        folder / "kafka",
        0,
        zookeeper.connect + theirs.chroot,
    )
    kafka.port = theirs.open_port
    kafka.settings |= settings(theirs.open_port, theirs.secure_port)
    kafka.write_settings()
    own = BrokerProcess(
        folder / "ottla",
        **settings(ours.open_port, ours.secure_port),
        zookeeper_connect=zookeeper.connect + ours.chroot,
    )
    try:
        kafka.start()
        own.start()
        for side in found:
            prepare(side)
        yield found
    finally:
        kafka.kill()
        if own.process is not None:
            own.kill()


def prepare(side: Side) -> None:
    """Topics and ACLs."""
    bindings = [
        acl(*right, f"User:{user_of(number, level, which)}")
        for row, number, level, which in CASES
        for right in rights(row, number, level, which)
    ]
    names = [topic_of(number, THERE) for number in range(len(ROWS))]
    with ottla.Admin(f"127.0.0.1:{side.open_port}", default_api_timeout_ms=120_000) as admin:
        admin.create_topics([ottla.NewTopic(name, 1, 1) for name in names])
        admin.create_acls(list(dict.fromkeys(bindings)))
        wait_until(lambda: set(names) <= admin.list_topics(), f"the topics of {side.name}")


def ask(connection: socket.socket, request: Request, version: int) -> Any:
    """The answer, or None where the connection was closed."""
    connection.sendall(encode_request(version, 1, "matrix", request))
    try:
        size = connection.recv(4, socket.MSG_WAITALL)
        if len(size) < 4:
            return None
        frame = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
    except ConnectionError:
        return None
    return decode_response(type(request), version, memoryview(frame))[1]


def connect(side: Side, user: str) -> socket.socket:
    """A connection on which the user has logged in."""
    connection = socket.create_connection(("127.0.0.1", side.secure_port), LIMIT_S)
    assert not ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
    login = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode())
    assert not ask(connection, login, 1).error_code, user
    return connection


def versions_of(side: Side) -> dict[int, range]:
    with socket.create_connection(("127.0.0.1", side.open_port), LIMIT_S) as connection:
        answer = ask(connection, ApiVersionsRequest(), 0)
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def codes(side: Side, user: str, request: Request, version: int, level: str) -> set[int] | str:
    """The errors of an answer; of one that is not denied only whether it is."""
    with connect(side, user) as connection:
        answer = ask(connection, request, version)
    if answer is None:
        return "closed"
    found = error_codes(answer)
    return found & DENIED if level == "full" else found - PASSING


def title(case: tuple[Row, int]) -> str:
    return f"{case[0].key.name}-{case[1]}"


@pytest.mark.parametrize("case", [(row, number) for number, row in enumerate(ROWS)], ids=title)
def test_denials_are_those_of_kafka(sides: list[Side], case: tuple[Row, int]) -> None:
    """Without a right, with DESCRIBE alone and with all, on what is there and what is not."""
    row, number = case
    theirs, ours = sides
    served = [versions_of(side).get(row.key, range(0)) for side in sides]
    message = request_class(row.key)
    known = range(
        max(message.min_version, row.first_version), min(message.max_version, row.last_version) + 1
    )
    versions = [version for version in known if all(version in each for each in served)]
    if not versions:
        pytest.skip(f"Kafka 3.9 with ZooKeeper serves no {row.key.name} of these versions")
    for level in LEVELS:
        is_skipped = level == "full" and row.key in BROKERS
        if is_skipped or (f"{row.key.name} {row.name}".strip(), level) in DIFFERENT:
            continue
        for version in versions[-1:] if level == "full" else versions:
            for which in (MISSING, THERE):
                user = user_of(number, level, which)
                request = row.body(version, topic_of(number, which))
                said = [codes(side, user, request, version, level) for side in (theirs, ours)]
                if said[0] in KRAFT_ONLY:
                    pytest.skip(f"Kafka 3.9 with ZooKeeper has no {row.key.name} {row.name}")
                assert said[0] == said[1], f"v{version}, {level}, topic {which}: Kafka, Ottla"


# What the tools of one have written, the other obeys.


def run_ours(*words: str, typed: str = "") -> None:
    raw, err = BytesIO(), StringIO()
    out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
    terminal = Terminal(source=BytesIO(typed.encode()), out=out, raw_out=raw, err=err)
    assert main(list(words), terminal) == 0, err.getvalue()


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": "secret of tools",
    }


def sees(side: Side, user: str, topic: str) -> bool:
    """Whether a user can log in, and the topic is in its list."""
    try:
        with ottla.Admin(f"127.0.0.1:{side.secure_port}", login(user)) as admin:
            return topic in admin.list_topics()
    except SaslAuthenticationError:
        return False
    except KafkaError as error:
        raise AssertionError(f"{side.name}: {error}") from error


def both_obey(side: Side, by: str, allow: Any, deny: Any, add_user: Any) -> None:
    """A user is made, and a right given and taken, while the broker runs."""
    user, topic = f"user-of-{by}", topic_of(0, THERE)
    assert not sees(side, user, topic)
    add_user(user)
    allow(user, topic)
    wait_until(lambda: sees(side, user, topic), f"{side.name} lets {user} in", LIMIT_S)
    deny(user, topic)
    wait_until(lambda: not sees(side, user, topic), f"{side.name} denies {user}", LIMIT_S)


@pytest.mark.parametrize("version", ["2.3", "3.9"])
def test_ottla_obeys_what_tools_of_kafka_write(sides: list[Side], zookeeper, version: str) -> None:
    """ACLs and users, written to ZooKeeper."""
    tools, side = KafkaTools(version, kafka_jars(version)), sides[1]
    connect_to = zookeeper.connect + side.chroot
    at = ("--authorizer-properties", f"zookeeper.connect={connect_to}")
    if version == "3.9":
        at += ("--authorizer", AUTHORIZER)
    words = ("--operation", "Describe", "--topic")
    both_obey(
        side,
        f"kafka-{version}",
        lambda user, topic: tools.run(
            "acls", *at, "--add", "--allow-principal", f"User:{user}", *words, topic
        ),
        lambda user, topic: tools.run(
            "acls", *at, "--add", "--deny-principal", f"User:{user}", *words, topic
        ),
        lambda user: tools.run(
            "configs",
            *("--zookeeper", connect_to, "--alter", "--entity-type", "users"),
            *("--entity-name", user, "--add-config"),
            "SCRAM-SHA-256=[iterations=4096,password=secret of tools]",
        ),
    )


def test_kafka_obeys_what_tools_of_ottla_write(sides: list[Side], zookeeper, tmp_path) -> None:
    """The other way round."""
    side = sides[0]
    connect_to = zookeeper.connect + side.chroot
    at = ("--authorizer-properties", f"zookeeper.connect={connect_to}")
    password = tmp_path / "password"
    password.write_text("secret of tools\n")
    words = ("--operation", "Describe", "--topic")
    both_obey(
        side,
        "ottla",
        lambda user, topic: run_ours(
            "acls", *at, "--add", "--allow-principal", f"User:{user}", *words, topic
        ),
        lambda user, topic: run_ours(
            "acls", *at, "--add", "--deny-principal", f"User:{user}", *words, topic
        ),
        lambda user: run_ours(
            "users", "add", user, "--zookeeper", connect_to, "--password-file", str(password)
        ),
    )
