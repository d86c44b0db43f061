"""ACLs in a real ZooKeeper: written by the tool before a broker runs, and followed afterwards."""

from __future__ import annotations

from io import BytesIO, StringIO, TextIOWrapper

from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.extensions.rights.rights import Rights
from ottla.security.acls import AclOperation, Resource, ResourceType
from ottla.security.principal import KafkaPrincipal
from ottla.testing import InProcessBroker, wait_until

BOB = KafkaPrincipal.user("bob")
ORDERS = Resource(ResourceType.TOPIC, "orders")


def run_tool(connect: str, *words: str) -> str:
    """What `ottla acls` prints that is sent to ZooKeeper."""
    raw, err = BytesIO(), StringIO()
    out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
    terminal = Terminal(source=BytesIO(), out=out, raw_out=raw, err=err)
    properties = ("--authorizer-properties", f"zookeeper.connect={connect}")
    status = main(["acls", *properties, *words], terminal)
    assert status == 0, err.getvalue()
    return raw.getvalue().decode()


def test_tool_and_broker_share_the_nodes_of_kafka(znodes):
    """Paths and JSON are those that Kafka 3.9.1 has written."""
    words = ("--operation", "Read", "--topic", "orders")
    run_tool(znodes.connect, "--add", "--allow-principal", "User:bob", *words)
    assert znodes.json("/kafka-acl/Topic/orders") == {
        "version": 1,
        "acls": [
            {
                "principal": "User:bob",
                "permissionType": "Allow",
                "host": "*",
                "operation": "Read",
            }
        ],
    }
    with InProcessBroker(
        zookeeper_connect=znodes.connect,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:ANONYMOUS",
    ) as broker:

        def may_read() -> bool:
            table = broker.broker.find(Rights).authorizer.table
            return table.is_allowed(BOB, "10.0.0.1", AclOperation.READ, ORDERS)

        assert may_read()
        run_tool(znodes.connect, "--add", "--deny-principal", "User:*", *words)
        wait_until(lambda: not may_read(), "the denial")
        listed = run_tool(znodes.connect, "--list", "--topic", "orders")
        assert listed.count("permissionType=") == 2
        prefixed = ("--topic", "logs-", "--resource-pattern-type", "prefixed")
        run_tool(znodes.connect, "--add", "--allow-principal", "User:bob", *prefixed)
        run_tool(znodes.connect, "--remove", "--force", "--topic", "orders")
        wait_until(lambda: len(broker.broker.find(Rights).authorizer.table) == 1, "the removal")
    assert znodes.names("/kafka-acl/Topic") == []
    assert znodes.names("/kafka-acl-extended/prefixed/Topic") == ["logs-"]
